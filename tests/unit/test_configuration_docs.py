from __future__ import annotations

from tools.configuration_docs import FILE, configuration_docs

from checkdam.config import OPTIONS
from checkdam.flink_keys import known_keys


def test_the_page_is_what_the_tables_say() -> None:
    assert FILE.read_text(encoding="utf-8") == configuration_docs(), "run `make docs`"


def test_the_page_has_every_key_with_its_older_spellings() -> None:
    page = configuration_docs()

    spellings = [spelling for option in OPTIONS for spelling in (option.key, *option.aliases)]
    assert [key for key in (*spellings, *known_keys()) if f"`{key}`" not in page] == []
