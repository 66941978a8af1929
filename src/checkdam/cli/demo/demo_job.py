"""The demo's job: counts the words of a directory of text files, a few files per epoch.

checkdam run demo_job.py -- INPUT_DIRECTORY OUTPUT_DIRECTORY
"""

import sys

from checkdam import StreamExecutionEnvironment


def words(line: str) -> list[str]:
    return [word.strip(".,;").lower() for word in line.split()]


source, target = sys.argv[1:]
env = StreamExecutionEnvironment.get_execution_environment()
(
    env.read_text(source, max_files_per_epoch=1)
    .flat_map(words, output_type=str)
    .map(lambda word: (word, 1), output_type=tuple[str, int])
    .key_by(lambda pair: pair[0], key_type=str)
    .sum(1)
    .uid("count")
    .sink_to_files(target, format="json")
)
env.execute("demo")
