"""Tools for testing jobs, used by users and by this project: see docs/testing.md."""

from checkdam.storage.memory_storage import MemoryStorage
from checkdam.testing.faulty_storage import Fault, FaultyStorage
from checkdam.testing.function_harness import FunctionHarness, HarnessSnapshot
from checkdam.testing.gate import Gate
from checkdam.testing.local_job import EVERY_EPOCH, Heard, LocalJob
from checkdam.testing.local_target import local_environment
from checkdam.testing.manual_clock import ManualClock
from checkdam.testing.output_directory import OutputDirectory
from checkdam.testing.trouble import DriverKilled, Moment, Step, Trouble, kill_driver, kill_slot, refuse, repeat_level

__all__ = [
    "EVERY_EPOCH",
    "DriverKilled",
    "Fault",
    "FaultyStorage",
    "FunctionHarness",
    "Gate",
    "HarnessSnapshot",
    "Heard",
    "LocalJob",
    "ManualClock",
    "MemoryStorage",
    "Moment",
    "OutputDirectory",
    "Step",
    "Trouble",
    "kill_driver",
    "kill_slot",
    "local_environment",
    "refuse",
    "repeat_level",
]
