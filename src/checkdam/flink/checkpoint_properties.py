"""The Java object at the end of `_metadata`: when Flink may delete the checkpoint, or that it is a savepoint.

Flink writes its `CheckpointProperties` with Java serialization. The bytes below are those of a checkpoint and of a
savepoint of Flink 2.3.0 (equal in 1.17.2), kept as they are, because nothing in them varies but five booleans and the
savepoint's format.
"""

from __future__ import annotations

from typing import Final

from checkdam.state.snapshot_handles import SavepointFormat

# Stream header, then the class: serialVersionUID 2, serializable, eight fields in the order their values follow.
_CLASS: Final = (
    b"\xac\xed\x00\x05sr\x008org.apache.flink.runtime.checkpoint.CheckpointProperties"
    b"\x00\x00\x00\x00\x00\x00\x00\x02\x02\x00\x08"
    b"Z\x00\x10discardCancelledZ\x00\rdiscardFailedZ\x00\x0fdiscardFinishedZ\x00\x0fdiscardSubsumed"
    b"Z\x00\x10discardSuspendedZ\x00\x06forcedZ\x00\tunclaimed"
    b"L\x00\x0echeckpointTypet\x002Lorg/apache/flink/runtime/checkpoint/SnapshotType;xp"
)

# forced and unclaimed are false; the type is CheckpointType("Checkpoint", SharingFilesStrategy.FORWARD_BACKWARD).
_NOT_FORCED_AND_TYPE: Final = (
    b"\x00\x00sr\x002org.apache.flink.runtime.checkpoint.CheckpointType\xd6\xdeO\x03\x05\xae\x1d:\x02\x00\x02"
    b"L\x00\x04namet\x00\x12Ljava/lang/String;"
    b"L\x00\x14sharingFilesStrategyt\x00GLorg/apache/flink/runtime/checkpoint/SnapshotType$SharingFilesStrategy;xp"
    b"t\x00\nCheckpoint"
    b"~r\x00Eorg.apache.flink.runtime.checkpoint.SnapshotType$SharingFilesStrategy"
    b"\x00\x00\x00\x00\x00\x00\x00\x00\x12\x00\x00xr\x00\x0ejava.lang.Enum\x00\x00\x00\x00\x00\x00\x00\x00\x12\x00\x00xp"
    b"t\x00\x10FORWARD_BACKWARD"
)

# forced is true, unclaimed false; the type is SavepointType(format, "Savepoint", PostCheckpointAction.NONE).
_FORCED_AND_FORMAT: Final = (
    b"\x01\x00sr\x001org.apache.flink.runtime.checkpoint.SavepointType\xa0\x87\xd3\x08\xa4X\x14\xb8\x02\x00\x03"
    b"L\x00\nformatTypet\x005Lorg/apache/flink/core/execution/SavepointFormatType;"
    b"L\x00\x04namet\x00\x12Ljava/lang/String;"
    b"L\x00\x14postCheckpointActiont\x00HLorg/apache/flink/runtime/checkpoint/SavepointType$PostCheckpointAction;xp"
    b"~r\x003org.apache.flink.core.execution.SavepointFormatType"
    b"\x00\x00\x00\x00\x00\x00\x00\x00\x12\x00\x00xr\x00\x0ejava.lang.Enum\x00\x00\x00\x00\x00\x00\x00\x00\x12\x00\x00xp"
    b"t"
)
_AFTER_FORMAT: Final = (
    b"t\x00\tSavepoint"
    b"~r\x00Forg.apache.flink.runtime.checkpoint.SavepointType$PostCheckpointAction"
    b"\x00\x00\x00\x00\x00\x00\x00\x00\x12\x00\x00xq\x00~\x00\tt\x00\x04NONE"
)

# discardCancelled, discardFailed, discardFinished, discardSubsumed, discardSuspended
_KEPT_WHEN_CANCELLED: Final = b"\x00\x00\x01\x01\x00"
_KEPT_WHEN_FAILED: Final = b"\x01\x00\x01\x01\x01"
_NEVER_KEPT: Final = b"\x01\x01\x01\x01\x01"
_ALWAYS_KEPT: Final = b"\x00\x00\x00\x00\x00"

RETAINED_CHECKPOINT: Final = _CLASS + _KEPT_WHEN_CANCELLED + _NOT_FORCED_AND_TYPE
"""A checkpoint that outlives the cancellation and the failure of its job, as in real retained checkpoints."""

_DELETED_WHEN_CANCELLED: Final = frozenset({"DELETE_ON_CANCELLATION", "RETAIN_ON_FAILURE"})


def checkpoint_properties(retention: str) -> bytes:
    """Return the properties of a checkpoint under this retention; an unknown retention keeps the checkpoint.

    Flink's DELETE_ON_CANCELLATION keeps the checkpoint of a failed job, so it is the same as RETAIN_ON_FAILURE.
    """
    if retention.upper() in _DELETED_WHEN_CANCELLED:
        return _CLASS + _KEPT_WHEN_FAILED + _NOT_FORCED_AND_TYPE
    if retention.upper() == "NO_EXTERNALIZED_CHECKPOINTS":
        return _CLASS + _NEVER_KEPT + _NOT_FORCED_AND_TYPE
    return RETAINED_CHECKPOINT


def savepoint_properties(format: SavepointFormat) -> bytes:
    """Return the properties of a savepoint: Flink never deletes one by itself."""
    name = format.value.encode()
    return _CLASS + _ALWAYS_KEPT + _FORCED_AND_FORMAT + len(name).to_bytes(2, "big") + name + _AFTER_FORMAT
