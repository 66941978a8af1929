from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest

from checkdam.errors import JobGraphError
from checkdam.runtime.slot.timers import STATE_NAMES
from checkdam.state.descriptors import (
    ListStateDescriptor,
    MapStateDescriptor,
    ReducingStateDescriptor,
    ValueStateDescriptor,
)


def test_a_descriptor_is_a_name_and_a_type() -> None:
    descriptor = ValueStateDescriptor("average", tuple[int, int], default=(0, 0))

    assert (descriptor.name, descriptor.type, descriptor.default) == ("average", tuple[int, int], (0, 0))


@pytest.mark.parametrize(("name", "of"), [("", int), (None, int), (3, int), ("name", None)])
def test_a_descriptor_without_name_or_type_is_refused(name: Any, of: Any) -> None:
    with pytest.raises(JobGraphError, match="Write ValueStateDescriptor"):
        ValueStateDescriptor(name, of)


@pytest.mark.parametrize("name", STATE_NAMES.values())
def test_a_name_that_timers_are_kept_under_is_refused(name: str) -> None:
    with pytest.raises(JobGraphError, match=f'state "{name}" begins with "_timers/"'):
        ListStateDescriptor(name, int)


@pytest.mark.parametrize(
    "describe",
    [
        lambda ttl: ValueStateDescriptor("pages", int, ttl=ttl),
        lambda ttl: ListStateDescriptor("pages", int, ttl),
        lambda ttl: ReducingStateDescriptor("pages", int, int.__add__, ttl),
        lambda ttl: MapStateDescriptor("pages", str, int, ttl),
    ],
)
@pytest.mark.parametrize("wrong", [timedelta(hours=1), 3600, True])
def test_a_time_to_live_that_is_no_configuration_is_refused(describe: Callable[[Any], Any], wrong: Any) -> None:
    with pytest.raises(JobGraphError, match=r'"pages".*\n?.*StateTtlConfig\(timedelta') as caught:
        describe(wrong)

    assert repr(wrong) in str(caught.value)
