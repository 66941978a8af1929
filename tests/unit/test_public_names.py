"""The public names: adding one is a decision, losing one a break."""

from __future__ import annotations

import subprocess
import sys

import pytest

import checkdam
import checkdam.testing
from checkdam import errors

PUBLIC = {
    "AggregateFunction",
    "AggregatingState",
    "AggregatingStateDescriptor",
    "Alias",
    "AllWindowFunction",
    "AllWindowedStream",
    "AsyncFunction",
    "AsyncRetry",
    "AvroType",
    "BatchContext",
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
    "CloseableIterator",
    "CoGroupFunction",
    "ColumnState",
    "ConfigError",
    "ConnectedStreams",
    "Context",
    "ContinuousEventTimeTrigger",
    "ContinuousProcessingTimeTrigger",
    "CountEvictor",
    "CountTrigger",
    "Counter",
    "DataStream",
    "DataStreamSink",
    "DeltaEvictor",
    "DeltaTrigger",
    "DiscardingSink",
    "EngineLostError",
    "EventTimeSessionWindows",
    "EventTimeTrigger",
    "Evictor",
    "EvictorContext",
    "ExponentialDelayRestart",
    "FailureRateRestart",
    "FencedError",
    "FilterFunction",
    "FixedDelayRestart",
    "FlatJoinFunction",
    "FlatMapFunction",
    "FormatTooNewError",
    "FunctionInitializationContext",
    "FunctionSnapshotContext",
    "GivenUpError",
    "GlobalWindow",
    "GlobalWindows",
    "HashMapStateBackend",
    "Histogram",
    "HistogramStatistics",
    "JobControlError",
    "JobEnd",
    "JobFailedError",
    "JobGraphError",
    "JobHandle",
    "JobResult",
    "JobStatus",
    "JoinContext",
    "JoinFunction",
    "KeyedBatch",
    "KeyedBatchFunction",
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
    "MergingWindowAssigner",
    "Meter",
    "MetricGroup",
    "NeverTrigger",
    "NoRestart",
    "OnMergeContext",
    "OnTimerContext",
    "OperatorStateStore",
    "OutputLostError",
    "OutputTag",
    "PickleType",
    "ProcessAllWindowFunction",
    "ProcessContext",
    "ProcessFunction",
    "ProcessJoinFunction",
    "ProcessWindowFunction",
    "ProcessingTimeSessionWindows",
    "ProcessingTimeTrigger",
    "ProcessingTimeoutTrigger",
    "PurgingTrigger",
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
    "SavepointFormat",
    "ServerUnreachableError",
    "SinkContext",
    "SinkFunction",
    "SlidingEventTimeWindows",
    "SlidingProcessingTimeWindows",
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
    "TimeEvictor",
    "TimeWindow",
    "TimerService",
    "TimestampedValue",
    "Trigger",
    "TriggerContext",
    "TriggerResult",
    "TtlTime",
    "TtlUpdateType",
    "TtlVisibility",
    "TumblingEventTimeWindows",
    "TumblingProcessingTimeWindows",
    "UsageError",
    "UserFunctionError",
    "ValueState",
    "ValueStateDescriptor",
    "WatermarkStrategy",
    "Window",
    "WindowAssigner",
    "WindowAssignerContext",
    "WindowContext",
    "WindowFunction",
    "WindowedStream",
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


TESTING = {
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
}


def test_the_names_of_the_kit_for_tests_are_exactly_these() -> None:
    assert set(checkdam.testing.__all__) == TESTING
    assert all(hasattr(checkdam.testing, name) for name in TESTING)


def test_importing_the_package_does_not_import_spark() -> None:
    code = "import checkdam, checkdam.testing, sys; sys.exit('pyspark' in sys.modules)"

    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


WITHOUT_SPARK = """
import sys
from checkdam.testing import FunctionHarness, local_environment

numbers = local_environment().from_collection([1, 2]).map(lambda number: number + 1, output_type=int)
assert sorted(numbers.execute_and_collect()) == [2, 3]
assert FunctionHarness(str.split, str, output_type=str).send("a b") == ["a", "b"]
sys.exit("pyspark" in sys.modules)
"""


@pytest.mark.slow
def test_tests_with_the_kit_run_without_spark() -> None:
    assert subprocess.run([sys.executable, "-c", WITHOUT_SPARK], check=False).returncode == 0
