"""The public names: adding one is a decision, losing one a break."""

from __future__ import annotations

import subprocess
import sys

import checkdam
from checkdam import errors

PUBLIC = {
    "AggregateFunction",
    "AggregatingState",
    "AggregatingStateDescriptor",
    "Alias",
    "AvroType",
    "BroadcastConnectedStream",
    "BroadcastContext",
    "BroadcastProcessFunction",
    "BroadcastStream",
    "CheckdamError",
    "CheckpointConfig",
    "CheckpointDamagedError",
    "CheckpointNotFoundError",
    "CheckpointRetention",
    "CheckpointedFunction",
    "CheckpointingMode",
    "CleanupFullSnapshot",
    "CleanupIncrementally",
    "CleanupOnCompaction",
    "ConfigError",
    "ConnectedStreams",
    "Context",
    "DataStream",
    "DataStreamSink",
    "EngineLostError",
    "ExponentialDelayRestart",
    "FailureRateRestart",
    "FencedError",
    "FilterFunction",
    "FixedDelayRestart",
    "FlatMapFunction",
    "FormatTooNewError",
    "FunctionInitializationContext",
    "FunctionSnapshotContext",
    "GivenUpError",
    "HashMapStateBackend",
    "JobControlError",
    "JobEnd",
    "JobFailedError",
    "JobGraphError",
    "JobResult",
    "KeyedBroadcastConnectedStream",
    "KeyedBroadcastProcessFunction",
    "KeyedCoProcessFunction",
    "KeyedProcessFunction",
    "KeyedStateAccess",
    "KeyedStream",
    "ListState",
    "ListStateDescriptor",
    "MapFunction",
    "MapState",
    "MapStateDescriptor",
    "NoRestart",
    "OnTimerContext",
    "OperatorStateStore",
    "OutputLostError",
    "OutputTag",
    "PickleType",
    "ProcessContext",
    "ProcessFunction",
    "ReadOnlyContext",
    "ReadOnlyMapState",
    "ReduceFunction",
    "ReducingState",
    "ReducingStateDescriptor",
    "RepeatedOutputError",
    "RequestRefusedError",
    "RestoreError",
    "RichFunction",
    "RocksDBStateBackend",
    "RuntimeContext",
    "SavepointError",
    "ServerUnreachableError",
    "SinkContext",
    "SinkFunction",
    "SlotLostError",
    "SourceContext",
    "SourceFunction",
    "StateAccessError",
    "StateNotReadyError",
    "StateNotRestorableError",
    "StateRequestError",
    "StateTtlConfig",
    "StorageError",
    "StorageUncertainError",
    "StreamExecutionEnvironment",
    "TimeDomain",
    "TimerService",
    "TtlTime",
    "TtlUpdateType",
    "TtlVisibility",
    "UsageError",
    "UserFunctionError",
    "ValueState",
    "ValueStateDescriptor",
    "WatermarkStrategy",
    "register_type",
}


def test_the_public_names_are_exactly_these() -> None:
    assert set(checkdam.__all__) == PUBLIC
    assert all(hasattr(checkdam, name) for name in PUBLIC)


INTERNAL_ERRORS = {
    "CheckpointDeclinedError",  # stays between slots and driver
    "JobFileError",  # of the command line
    "NoSuchCallError",  # a JobGraphError like any other
}


def test_every_error_that_a_program_can_meet_is_public() -> None:
    tree = {name for name, of in vars(errors).items() if isinstance(of, type) and issubclass(of, errors.CheckdamError)}

    assert tree - PUBLIC == INTERNAL_ERRORS


def test_importing_the_package_does_not_import_spark() -> None:
    code = "import checkdam, checkdam.testing.local_job, sys; sys.exit('pyspark' in sys.modules)"

    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
