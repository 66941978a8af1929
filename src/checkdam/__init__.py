"""Checkdam: Flink's state and checkpoints for PySpark."""

from checkdam.api.connected import BroadcastConnectedStream, BroadcastStream, ConnectedStreams
from checkdam.api.environment import StreamExecutionEnvironment
from checkdam.api.streams import DataStream, KeyedStream
from checkdam.backends.hashmap.hashmap_store import HashMapStateBackend
from checkdam.backends.rocksdb import RocksDBStateBackend
from checkdam.checkpoint.settings import CheckpointConfig, CheckpointingMode, CheckpointRetention
from checkdam.graph.contexts import (
    BroadcastContext,
    Context,
    FunctionInitializationContext,
    FunctionSnapshotContext,
    KeyedStateAccess,
    OnTimerContext,
    OperatorStateStore,
    OutputTag,
    ProcessContext,
    ReadOnlyContext,
    RuntimeContext,
    SinkContext,
    SourceContext,
    TimeDomain,
    TimerService,
)
from checkdam.graph.functions import (
    AggregateFunction,
    BroadcastProcessFunction,
    CheckpointedFunction,
    FilterFunction,
    FlatMapFunction,
    KeyedBroadcastProcessFunction,
    KeyedCoProcessFunction,
    KeyedProcessFunction,
    MapFunction,
    ProcessFunction,
    ReduceFunction,
    RichFunction,
    SinkFunction,
    SourceFunction,
)
from checkdam.graph.watermarks import WatermarkStrategy
from checkdam.runtime.restart import ExponentialDelayRestart, FailureRateRestart, FixedDelayRestart, NoRestart
from checkdam.state.descriptors import (
    AggregatingStateDescriptor,
    ListStateDescriptor,
    MapStateDescriptor,
    ReducingStateDescriptor,
    ValueStateDescriptor,
)
from checkdam.state.handles import AggregatingState, ListState, MapState, ReadOnlyMapState, ReducingState, ValueState
from checkdam.state.ttl import (
    CleanupFullSnapshot,
    CleanupIncrementally,
    CleanupOnCompaction,
    StateTtlConfig,
    TtlTime,
    TtlUpdateType,
    TtlVisibility,
)
from checkdam.types.hints import Alias, AvroType, PickleType
from checkdam.types.registration import register_type

__version__ = "0.1.0"

__all__ = [
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
]
