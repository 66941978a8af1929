"""Word count over text files: `checkdam run examples/word_count.py -- README.md`.

With -D state.checkpoints.dir=… and
-D execution.checkpointing.externalized-checkpoint-retention=RETAIN_ON_CANCELLATION the counts survive:
`--resume latest` goes on with files that were added since.
"""

import sys

from checkdam import StreamExecutionEnvironment

if len(sys.argv) != 2:
    sys.exit("usage: checkdam run examples/word_count.py -- FILE_OR_DIRECTORY")

env = StreamExecutionEnvironment.get_execution_environment()
(
    env.read_text(sys.argv[1], max_files_per_epoch=100)
    .flat_map(str.split, output_type=str)
    .map(lambda word: (word, 1), output_type=tuple[str, int])
    .key_by(lambda pair: pair[0], key_type=str)
    .sum(1)
    .uid("word-count")
    .print()
)
env.execute("WordCount")
