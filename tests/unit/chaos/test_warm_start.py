"""The Java that tests and chaos start Spark with: the real one, with flags before its own arguments."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest
from chaos import warm_start

SAYS_ITS_ARGUMENTS = '#!/bin/sh\nprintf "%s\\n" "$@"\n'


@pytest.fixture(autouse=True)
def real_java(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    java = tmp_path / "real java" / "bin" / "java"
    java.parent.mkdir(parents=True)
    java.write_text(SAYS_ITS_ARGUMENTS)
    java.chmod(0o755)
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "real java"))
    monkeypatch.setattr(warm_start, "_BUILD", tmp_path / "a build")
    monkeypatch.setattr(warm_start, "QUICK_JAVA", tmp_path / "a build" / "quick-java")


def _arguments(*given: str) -> list[str]:
    java = Path(warm_start.quick_environment()["JAVA_HOME"]) / "bin" / "java"
    return subprocess.run([java, *given], capture_output=True, text=True, check=True).stdout.splitlines()


def test_there_is_no_quick_java_before_it_was_made() -> None:
    assert warm_start.quick_environment() == {}


def test_the_real_java_gets_flags_and_then_what_it_was_given() -> None:
    warm_start.make_quick_java()

    arguments = _arguments("-cp", "a path/*", "Main")

    assert "-XX:TieredStopAtLevel=1" in arguments
    assert arguments[-3:] == ["-cp", "a path/*", "Main"]
    assert not [each for each in arguments if "SharedArchiveFile" in each]  # there is none yet


def test_an_archive_is_used_once_it_is_there() -> None:
    warm_start.make_quick_java()
    warm_start.class_archive().touch()

    assert f"-XX:SharedArchiveFile={warm_start.class_archive()}" in _arguments("Main")


def test_it_does_not_call_itself_when_it_is_made_again_by_a_process_that_uses_it(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    warm_start.make_quick_java()
    monkeypatch.setenv("PATH", f"{tmp_path / 'real java' / 'bin'}:/usr/bin:/bin")
    monkeypatch.setenv("JAVA_HOME", warm_start.quick_environment()["JAVA_HOME"])

    warm_start.make_quick_java()

    assert _arguments("Main")[-1] == "Main"
