"""The public names: adding one is a decision, losing one a break."""

from __future__ import annotations

import subprocess
import sys

import checkdam

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
    "CheckpointConfig",
    "CheckpointRetention",
    "CheckpointedFunction",
    "CheckpointingMode",
    "CleanupFullSnapshot",
    "CleanupIncrementally",
    "CleanupOnCompaction",
    "ConnectedStreams",
    "Context",
    "DataStream",
    "ExponentialDelayRestart",
    "FailureRateRestart",
    "FilterFunction",
    "FixedDelayRestart",
    "FlatMapFunction",
    "FunctionInitializationContext",
    "FunctionSnapshotContext",
    "HashMapStateBackend",
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
    "OutputTag",
    "PickleType",
    "ProcessContext",
    "ProcessFunction",
    "ReadOnlyContext",
    "ReadOnlyMapState",
    "ReduceFunction",
    "ReducingState",
    "ReducingStateDescriptor",
    "RichFunction",
    "RocksDBStateBackend",
    "RuntimeContext",
    "SinkContext",
    "SinkFunction",
    "SourceContext",
    "SourceFunction",
    "StateTtlConfig",
    "StreamExecutionEnvironment",
    "TimeDomain",
    "TimerService",
    "TtlTime",
    "TtlUpdateType",
    "TtlVisibility",
    "ValueState",
    "ValueStateDescriptor",
    "WatermarkStrategy",
    "register_type",
}


def test_the_public_names_are_exactly_these() -> None:
    assert set(checkdam.__all__) == PUBLIC
    assert all(hasattr(checkdam, name) for name in PUBLIC)


def test_importing_the_package_does_not_import_spark() -> None:
    code = "import checkdam, checkdam.testing.local_job, sys; sys.exit('pyspark' in sys.modules)"

    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
