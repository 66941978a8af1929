"""Reads settings files: YAML with flat or nested keys, and the line format of Flink 1.x."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import yaml

from checkdam.errors import ConfigError

FLINK_1_FILE = "flink-conf.yaml"
FLINK_2_FILE = "config.yaml"

Entry = tuple[str, object, str]
"""A key, its value (text, or a tuple of texts for a list), and its location, for errors."""


def read_settings_file(file: Path) -> list[Entry]:
    """Read a settings file, or the one in a configuration directory of Flink. Raises ConfigError.

    A file named flink-conf.yaml is read as Flink 1.x does, line by line: a "#" starts a comment, the first ": " ends
    the key, and of two lines with the same key the later wins.
    """
    if file.is_dir():
        file = _in_directory(file)
    try:
        text = file.read_text(encoding="utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or "it is not UTF-8 text"
        raise ConfigError(f'settings file "{file}" cannot be read: {reason}', hint="Check the path.") from error
    return _read_lines(text, file) if file.name == FLINK_1_FILE else _read_yaml(text, file)


def _in_directory(directory: Path) -> Path:
    """Return the file that Flink would read there; one of 1.x takes precedence over one of 2.x."""
    for name in (FLINK_1_FILE, FLINK_2_FILE):
        if (directory / name).is_file():
            return directory / name
    raise ConfigError(
        f'directory "{directory}" has no {FLINK_1_FILE} and no {FLINK_2_FILE}', hint="Name a settings file."
    )


def _read_lines(text: str, file: Path) -> list[Entry]:
    entries: dict[str, Entry] = {}
    for number, line in enumerate(text.splitlines(), start=1):
        content = line.partition("#")[0].strip()
        key, separator, value = content.partition(": ")
        if separator and key.strip() and value.strip():  # Flink skips any other line, too
            entries[key.strip()] = (key.strip(), value.strip().strip("\"'"), f" ({file}, line {number})")
    return list(entries.values())


def _read_yaml(text: str, file: Path) -> list[Entry]:
    try:
        root = yaml.compose(text, Loader=yaml.SafeLoader)
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        where = f", line {mark.line + 1}" if mark is not None else ""
        problem = getattr(error, "problem", None) or getattr(error, "reason", None) or "it cannot be parsed"
        raise ConfigError(
            f'settings file "{file}"{where} is not valid YAML: {problem}', hint="Correct that line."
        ) from error
    if root is None or root.value == "":
        return []
    if not isinstance(root, yaml.MappingNode):
        raise ConfigError(f'settings file "{file}" holds no settings', hint='Write lines of the form "key: value".')
    entries = list(_flatten(root, (), file))
    seen: set[str] = set()
    for key, _, where in entries:
        if key in seen:
            raise ConfigError(f'setting "{key}"{where} is given twice', hint="Remove one of the two.")
        seen.add(key)
    return entries


def _flatten(node: yaml.MappingNode, prefix: tuple[str, ...], file: Path) -> Iterator[Entry]:
    for key_node, value_node in node.value:
        path = (*prefix, str(key_node.value))
        where = f" ({file}, line {key_node.start_mark.line + 1})"
        if isinstance(value_node, yaml.MappingNode) and len(path) < 16:  # an anchor may contain itself
            yield from _flatten(value_node, path, file)
        elif isinstance(value_node, yaml.ScalarNode) and isinstance(key_node, yaml.ScalarNode):
            yield ".".join(path), value_node.value, where
        elif isinstance(value_node, yaml.SequenceNode) and isinstance(key_node, yaml.ScalarNode):
            yield ".".join(path), tuple(_texts(value_node)), where
        else:
            raise ConfigError(f'setting "{".".join(path)}"{where} is not a single value', hint='Write "key: value".')


def _texts(node: yaml.SequenceNode) -> Iterator[str]:
    for each in node.value:
        yield each.value if isinstance(each, yaml.ScalarNode) else yaml.serialize(each).strip()
