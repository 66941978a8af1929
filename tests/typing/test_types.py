"""What mypy finds in users' programs: exactly the types and the errors that their comments name.

`# R: type` is a revealed type, `# E: code: text` an error of that code whose message holds the text. Each stands behind
its line or, where there is no room, above it.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

import pytest
from mypy import api

ROOT = Path(__file__).parents[2]
PROGRAMS = sorted((ROOT / "tests/typing/programs").glob("*.py"))
EXAMPLES = sorted((ROOT / "examples").rglob("*.py"))

_MARKER = re.compile(r"# (R|E): (.*?)(?=\s+# [RE]: |$)")
_REVEALED = re.compile(r"(.+?):(\d+): note: Revealed type is \"(.*)\"")
_ERROR = re.compile(r"(.+?):(\d+): error: (.*)  \[([\w-]+)\]")
_MODULE = re.compile(r"(?:\w+\.)+(?=\w)")
_NAMED_TUPLE = re.compile(r"tuple\[[^][]*, fallback=(\w+)\]")


@dataclass(frozen=True)
class Finding:
    """A revealed type (kind R), or an error (kind E) as `code: message`."""

    program: str
    line: int
    kind: str
    text: str

    def fits(self, named: Finding) -> bool:
        """Whether a comment names this finding."""
        if (self.program, self.line, self.kind) != (named.program, named.line, named.kind):
            return False
        if self.kind == "R":
            return self.text == named.text
        code, _, text = named.text.partition(": ")
        return self.text.startswith(f"{code}: ") and text in self.text


def named_in(program: Path) -> list[Finding]:
    return [
        Finding(program.name, number + line.lstrip().startswith("#"), kind, text.strip())
        for number, line in enumerate(program.read_text().splitlines(), 1)
        for kind, text in _MARKER.findall(line)
    ]


def found_by_mypy() -> list[Finding]:
    """All findings, of one run for all programs, with the options and so the cache of `make check`."""
    programs = [str(program.relative_to(ROOT)) for program in PROGRAMS]
    said, failure, _ = api.run(["--strict", "--explicit-package-bases", "--no-error-summary", "--no-pretty", *programs])
    assert not failure
    found = []
    for line in said.splitlines():
        if revealed := _REVEALED.fullmatch(line):
            found.append(Finding(Path(revealed[1]).name, int(revealed[2]), "R", _short(revealed[3])))
        elif error := _ERROR.fullmatch(line):
            found.append(Finding(Path(error[1]).name, int(error[2]), "E", _short(f"{error[4]}: {error[3]}")))
    return found


def _short(text: str) -> str:
    """Names without their modules; a named tuple by its name alone."""
    return _NAMED_TUPLE.sub(r"\1", _MODULE.sub("", text))


def test_mypy_finds_exactly_the_types_and_errors_that_the_programs_name(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)
    named = [finding for program in PROGRAMS for finding in named_in(program)]

    found = found_by_mypy()

    assert [each for each in found if not any(map(each.fits, named))] == []  # found, and not named
    assert [each for each in named if not any(finding.fits(each) for finding in found)] == []
    assert len(found) == len(named)


@pytest.mark.parametrize("program", [*PROGRAMS, *EXAMPLES], ids=lambda program: program.stem)
def test_no_program_needs_any(program: Path) -> None:
    code = re.sub(r"#.*", "", program.read_text())

    assert not re.search(r"\bAny\b|\bcast\b|type: ignore", code)
