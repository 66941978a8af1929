from __future__ import annotations

from typing import Any

import pytest

from checkdam.errors import JobGraphError
from checkdam.state.descriptors import ValueStateDescriptor


def test_a_descriptor_is_a_name_and_a_type() -> None:
    descriptor = ValueStateDescriptor("average", tuple[int, int], default=(0, 0))

    assert (descriptor.name, descriptor.type, descriptor.default) == ("average", tuple[int, int], (0, 0))


@pytest.mark.parametrize(("name", "of"), [("", int), (None, int), (3, int), ("name", None)])
def test_a_descriptor_without_name_or_type_is_refused(name: Any, of: Any) -> None:
    with pytest.raises(JobGraphError, match="Write ValueStateDescriptor"):
        ValueStateDescriptor(name, of)
