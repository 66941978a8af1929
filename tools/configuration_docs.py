"""Writes docs/configuration.md from the tables of settings: `make docs`, or `python -m tools.configuration_docs`."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta
from itertools import groupby
from pathlib import Path
from typing import Any

from checkdam.config import OPTIONS, ConfigOption
from checkdam.flink_keys import REFUSED, WITHOUT_EFFECT

FILE = Path(__file__).parents[1] / "docs" / "configuration.md"

_HEAD = """\
<!-- Made by tools/configuration_docs.py from src/checkdam/config.py and src/checkdam/flink_keys.py: `make docs`. -->

# Configuration

Settings have Flink's keys. Option by option, a value comes from the first of these that names it:

1. **code**: `CheckpointConfig(…)`, `env.set_state_backend(…)`, `env.set_restart_strategy(…)`, `env.set_parallelism(…)`,
   `StreamExecutionEnvironment.get_execution_environment({"key": value})`;
2. **the command line**: `-D key=value`, and the options that stand for a key (`-p`, `--master`, `--port` …);
3. **the file**: `checkdam.yaml` in the current directory, or the one that `--config` names;
4. **the default**.

An option that an object in code leaves out keeps the value of the command line or the file. `GET /jobs/<id>/config` and the page
show every option with the value that holds and where it comes from. Those of the server (`rest.*`) have no effect in code: it is
up before the program runs. `-s`, `-n` and `--resume` win over what code says about where to start from.

## Files

`--config` takes a file of Checkdam or of Flink, or a configuration directory of Flink, as they are:

- YAML, with flat keys (`state.checkpoints.dir: …`), nested ones, or both: `checkdam.yaml`, and `config.yaml` of Flink 1.19 and later;
- `flink-conf.yaml` of Flink 1.x, by its name: a line is a key, `: ` and a value; what follows a `#` is a comment; any other line is
  passed over; of two lines with one key the later counts;
- a directory: its `flink-conf.yaml`, else its `config.yaml`. `FLINK_CONF_DIR` is not read by itself: a Flink that happens to be
  installed should not change a job. `--config "$FLINK_CONF_DIR"` says so openly.

A key that takes effect does so; Flink's other keys are accepted, and those of them that were given are named once when the job
starts, and by `checkdam check`, with the reason why they have no effect. A value that holds anyway (`unaligned: false`) is not
mentioned. An unknown key is an error that suggests the one that may be meant. Keys that begin with `spark.` are passed on to
Spark. Of two spellings of one setting the newer wins.

## Checkpoints in memory

`CheckpointConfig(storage="jobmanager")`, `execution.checkpointing.storage: jobmanager` or Flink 1.x's `state.backend: jobmanager` keep
checkpoints in the memory of the driver, which serves them to the slots: nothing is written to disk. A failover restores from there;
with the driver they are gone, so such a job cannot be resumed, and `-s` and `--resume latest` say so. Savepoints go to a directory as
ever. A state of a subtask above `execution.checkpointing.memory-storage.max-state-size` (5 mb; in code `max_state_size`) declines the
checkpoint. Every checkpoint is full, unless `execution.checkpointing.incremental` says otherwise: then all files that a state is
restored from count. This is for trying things out: use a directory for anything that must not be lost.

## Values

| type | written as |
|---|---|
| duration | a number and a unit: `ms`, `s`, `min`, `h`, `d`, `µs`, `ns` and their long names (`10 min`, `1 h`); a bare number counts milliseconds; also `PT10M` |
| memory size | a number and a unit, each 1024 times the one before: `b`, `kb`, `mb`, `gb`, `tb`, also `k`, `m`, `kibibytes` … (`64mb`, `1 gb`); a bare number counts bytes |
| choice | in any case, with `-` or `_` |
"""

_TITLES = {
    "execution.checkpointing": "Checkpoints and savepoints",
    "state.savepoints": "Checkpoints and savepoints",
    "execution.state-recovery": "Restoring",
    "execution": "Execution",
    "state.backend": "State backends",
    "parallelism": "Parallelism, name and cluster",
    "pipeline": "Parallelism, name and cluster",
    "spark": "Parallelism, name and cluster",
    "restart-strategy": "Restarts",
    "heartbeat": "Heartbeats and hangs",
    "task": "Heartbeats and hangs",
    "rest": "REST and web page",
    "web": "REST and web page",
    "env": "Log files",
}


def configuration_docs() -> str:
    """The whole page."""
    return "\n".join([_HEAD, *_options(), *_without_effect(), *_refused()]).rstrip() + "\n"


def _options() -> Iterator[str]:
    titles = list(dict.fromkeys(_TITLES.values()))
    for title, options in groupby(sorted(OPTIONS, key=lambda each: titles.index(_title(each))), key=_title):
        yield f"## {title}\n"
        yield "| key | type | default | meaning |\n|---|---|---|---|"
        for option in options:
            also = "".join(f"<br>also `{alias}`" for alias in option.aliases)
            meaning = option.description.replace("|", "\\|")
            yield f"| `{option.key}`{also} | {option.type.expected} | {_text(option.default)} | {meaning} |"
        yield ""


def _title(option: ConfigOption[Any]) -> str:
    return next(title for prefix, title in _TITLES.items() if option.key.startswith(prefix + "."))


def _without_effect() -> Iterator[str]:
    yield "## Accepted without effect\n"
    yield "`….*` stands for every key that begins so and is not listed above.\n"
    yield "| keys | why |\n|---|---|"
    for each in WITHOUT_EFFECT:
        keys = [*each.keys, *(f"{family}*" for family in each.families)]
        yield f"| **{each.title}**<br>{'<br>'.join(f'`{key}`' for key in keys)} | {_sentence(each.reason)} |"
    yield ""


def _refused() -> Iterator[str]:
    yield "## Refused\n"
    yield "| keys | accepted values | why not others |\n|---|---|---|"
    for each in REFUSED:
        keys = "<br>".join(f"`{key}`" for key in each.keys)
        yield f"| {keys} | {', '.join(f'`{value}`' for value in each.allowed)} | {_sentence(each.reason)} {each.hint} |"


def _sentence(text: str) -> str:
    return f"{text[0].upper()}{text[1:]}."


def _text(value: object) -> str:
    if value is None:
        return "unset"
    if isinstance(value, bool):
        return f"`{str(value).lower()}`"
    if isinstance(value, timedelta):
        for unit, length in (("h", 3600), ("min", 60), ("s", 1)):
            if value and not value % timedelta(seconds=length):
                return f"`{value // timedelta(seconds=length)} {unit}`"
        return f"`{value // timedelta(milliseconds=1)} ms`"
    if isinstance(value, int) and value >= 1 << 20:
        return f"`{value >> 20} mb`"
    return f"`{value}`"


if __name__ == "__main__":
    FILE.write_text(configuration_docs(), encoding="utf-8")
