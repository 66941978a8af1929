"""What Flink's Java client reads as an exception; that it really does is shown in tests/spark/test_flink_cli.py."""

from __future__ import annotations

import base64

import pytest

from checkdam.flink.java_data import decode_utf
from checkdam.flink.java_throwable import serialized_throwable

# Read back by org.apache.flink.util.InstantiationUtil of Flink 2.2.0 and 2.3.0.
READ_BY_FLINK = (
    "rO0ABXNyAClvcmcuYXBhY2hlLmZsaW5rLnV0aWwuU2VyaWFsaXplZFRocm93YWJsZWUWnfUfpxPzAgACTAAZZnVsbFN0cmluZ2lmaWVkU3RhY2"
    "tUcmFjZXQAEkxqYXZhL2xhbmcvU3RyaW5nO0wAFm9yaWdpbmFsRXJyb3JDbGFzc05hbWV0ABJMamF2YS9sYW5nL1N0cmluZzt4cgATamF2YS5s"
    "YW5nLkV4Y2VwdGlvbtD9Hz4aOxzEAgAAeHIAE2phdmEubGFuZy5UaHJvd2FibGXVxjUnOXe4ywMAAUwADWRldGFpbE1lc3NhZ2V0ABJMamF2YS"
    "9sYW5nL1N0cmluZzt4cHQAAm5veHQAA2E6YnQAB2Euc29tZUU="
)


def test_the_stream_is_the_one_that_flink_has_read() -> None:
    assert serialized_throwable("a.someE", "no", "a:b") == READ_BY_FLINK


@pytest.mark.parametrize("text", ["", "\0", "größer 😀", "x" * 65_535, "x" * 65_536])
def test_any_text_survives_whatever_its_length(text: str) -> None:
    stream = base64.b64decode(serialized_throwable("E", text, "trace"))

    after_classes = stream[stream.index(b"\x78\x70") + 2 :]  # the topmost class has no parent
    width = 8 if after_classes[:1] == b"\x7c" else 2
    length = int.from_bytes(after_classes[1 : 1 + width], "big")
    assert decode_utf(after_classes[1 + width : 1 + width + length]) == text
    assert after_classes[1 + width + length :].startswith(b"\x78\x74\x00\x05trace")
