"""Finds values by a piece of their text, as the web page and the command line show it."""

from __future__ import annotations

import json
from typing import Any, Final

from checkdam.errors import UsageError
from checkdam.types.json_values import to_json
from checkdam.types.type_info import TypeInfo

MOST_SCANNED: Final = 10_000
"""How many values one request looks at: a filter that finds little must not read a whole state at once."""

_LONGEST: Final = 200
_text_of = json.JSONEncoder(ensure_ascii=False, separators=(",", ":")).encode


class TextFilter:
    """Whether the JSON of a value contains a text, ignoring case. So `"ada"` with quotes is the whole of a text key."""

    def __init__(self, text: str, of: TypeInfo) -> None:
        self._text = text.casefold()
        self._of = of

    def __call__(self, value: Any) -> bool:
        return self._text in _text_of(to_json(value, self._of)).casefold()


def check_filter(text: str | None) -> str | None:
    """Return the text of a filter; None for an empty one, which every value fits.

    Raises:
        UsageError: it is too long.
    """
    if text is not None and len(text) > _LONGEST:
        raise UsageError(f"a filter of {len(text)} characters is too long", hint=f"Give at most {_LONGEST}.")
    return text or None
