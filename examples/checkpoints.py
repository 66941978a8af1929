"""Word count with every setting of checkpoints: `checkdam run examples/checkpoints.py`.

Prints the running counts, the last of them ('to', 2) and ('be', 2), and leaves its checkpoints below checkdam-data, or
where an argument says. `checkdam inspect checkdam-data/<job>/chk-1` shows the final one.
"""

import sys
from datetime import timedelta

from checkdam import (
    CheckpointConfig,
    CheckpointingMode,
    CheckpointRetention,
    FixedDelayRestart,
    RocksDBStateBackend,
    StreamExecutionEnvironment,
)

env = StreamExecutionEnvironment.get_execution_environment()
env.enable_checkpointing(
    CheckpointConfig(
        interval=timedelta(seconds=1),
        mode=CheckpointingMode.EXACTLY_ONCE,
        min_pause=timedelta(milliseconds=500),
        timeout=timedelta(minutes=1),
        tolerable_failures=2,
        max_concurrent=1,
        retention=CheckpointRetention.RETAIN_ON_CANCELLATION,
        num_retained=3,
        storage=sys.argv[1] if len(sys.argv) > 1 else "checkdam-data",
    )
)
env.set_state_backend(RocksDBStateBackend(memory="256 MB"))  # HashMapStateBackend() is the default
env.set_restart_strategy(FixedDelayRestart(attempts=3, delay=timedelta(seconds=10)))
(
    env.from_collection(["to be or not to be"])
    .flat_map(str.split, output_type=str)
    .map(lambda word: (word, 1), output_type=tuple[str, int])
    .key_by(lambda pair: pair[0], key_type=str)
    .sum(1)
    .uid("word-count")
    .print()
)
env.execute("Checkpoints")
