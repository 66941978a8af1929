"""Doubles that pass the contract suites, for this project's tests and for its users'."""

from checkdam.testing.faulty_storage import Fault, FaultyStorage
from checkdam.testing.manual_clock import ManualClock
from checkdam.testing.memory_storage import MemoryStorage

__all__ = ["Fault", "FaultyStorage", "ManualClock", "MemoryStorage"]
