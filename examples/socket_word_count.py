"""Word count over a socket: start `nc -lk 7777`, then `checkdam run examples/socket_word_count.py`, and type."""

from checkdam import StreamExecutionEnvironment

env = StreamExecutionEnvironment.get_execution_environment()  # checkdam.yaml, then -D, then code
(
    env.socket_text_stream("localhost", 7777)
    .flat_map(str.split, output_type=str)
    .map(lambda word: (word, 1), output_type=tuple[str, int])
    .key_by(lambda pair: pair[0], key_type=str)
    .sum(1)
    .uid("wc-sum")
    .print()
)
env.execute("StreamWordCount")
