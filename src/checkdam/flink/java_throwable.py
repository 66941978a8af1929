"""A failure in the form that Flink's Java client requires: a Flink exception in Java's own serialization.

Without it the client considers the answer unreadable and retries until it times out, a minute later.
"""

from __future__ import annotations

import base64
import struct

from checkdam.flink.java_data import encode_utf

_MAGIC = b"\xac\xed\x00\x05"
_NULL = b"\x70"
_CLASS = b"\x72"
_OBJECT = b"\x73"
_STRING = b"\x74"
_END = b"\x78"
_LONG_STRING = b"\x7c"
_SERIALIZABLE = 0x02
_WITH_WRITE_METHOD = 0x01
_SHORT_STRING_LIMIT = 0xFFFF
_STRING_TYPE = "Ljava/lang/String;"


def serialized_throwable(class_name: str, message: str, stack_trace: str) -> str:
    """Return the Base64 of an `org.apache.flink.util.SerializedThrowable` that stands for this failure.

    Java reads its fields by name and uses null for missing ones: the cause, the list of frames, and the original
    exception, for which no JVM has a class.
    """
    throwable = _class("java.lang.Throwable", -3042686055658047285, ["detailMessage"], _WITH_WRITE_METHOD, _NULL)
    exception = _class("java.lang.Exception", -3387516993124229948, [], 0, throwable)
    fields = ["fullStringifiedStackTrace", "originalErrorClassName"]
    described = _class("org.apache.flink.util.SerializedThrowable", 7284183123441947635, fields, 0, exception)
    values = _string(message) + _END + _string(stack_trace) + _string(class_name)
    return base64.b64encode(_MAGIC + _OBJECT + described + values).decode()


def _class(name: str, version: int, string_fields: list[str], flags: int, parent: bytes) -> bytes:
    """Return a class description of the stream; the values of an object follow it, its topmost parent's first."""
    fields = b"".join(b"L" + _utf(field) + _string(_STRING_TYPE) for field in string_fields)
    head = struct.pack(">qBH", version, flags | _SERIALIZABLE, len(string_fields))
    return _CLASS + _utf(name) + head + fields + _END + parent


def _utf(text: str) -> bytes:
    raw = encode_utf(text)
    return struct.pack(">H", len(raw)) + raw


def _string(text: str) -> bytes:
    raw = encode_utf(text)
    if len(raw) > _SHORT_STRING_LIMIT:
        return _LONG_STRING + struct.pack(">Q", len(raw)) + raw
    return _STRING + struct.pack(">H", len(raw)) + raw
