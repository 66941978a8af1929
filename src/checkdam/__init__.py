"""Checkdam: Flink's state and checkpoints for PySpark."""

from checkdam.api.environment import StreamExecutionEnvironment
from checkdam.api.streams import DataStream, KeyedStream
from checkdam.backends.hashmap import HashMapStateBackend
from checkdam.checkpoint.settings import CheckpointConfig, CheckpointingMode, CheckpointRetention
from checkdam.graph.functions import (
    FilterFunction,
    FlatMapFunction,
    KeyedProcessFunction,
    MapFunction,
    ProcessContext,
    ReduceFunction,
    RichFunction,
    RuntimeContext,
)
from checkdam.runtime.restart import ExponentialDelayRestart, FailureRateRestart, FixedDelayRestart, NoRestart
from checkdam.state.descriptors import ValueStateDescriptor
from checkdam.state.handles import ValueState

__version__ = "0.1.0"

__all__ = [
    "CheckpointConfig",
    "CheckpointRetention",
    "CheckpointingMode",
    "DataStream",
    "ExponentialDelayRestart",
    "FailureRateRestart",
    "FilterFunction",
    "FixedDelayRestart",
    "FlatMapFunction",
    "HashMapStateBackend",
    "KeyedProcessFunction",
    "KeyedStream",
    "MapFunction",
    "NoRestart",
    "ProcessContext",
    "ReduceFunction",
    "RichFunction",
    "RuntimeContext",
    "StreamExecutionEnvironment",
    "ValueState",
    "ValueStateDescriptor",
]
