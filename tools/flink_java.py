"""Programs in Java that run on Flink: compiled with Flink's libraries, which tools/flink.sh installs."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

ROOT = Path(__file__).parents[1]


def libraries() -> str:
    """Return the class path of Flink. Install Flink if it is missing."""
    made = subprocess.run(["sh", str(ROOT / "tools" / "flink.sh")], stdout=subprocess.PIPE, text=True, check=True)
    return str(Path(made.stdout.strip()).parents[1] / "lib" / "*")


def compile_program(source: Path, classes: Path, class_path: str) -> None:
    """Compile a program of one file, unless it has been since the file changed."""
    compiled = classes / f"{source.stem}.class"
    if compiled.exists() and compiled.stat().st_mtime >= source.stat().st_mtime:
        return
    classes.mkdir(parents=True, exist_ok=True)
    subprocess.run(
        [java_tool("javac"), "-nowarn", "-XDsuppressNotes", "-cp", class_path, "-d", str(classes), str(source)],
        check=True,
    )


def java_tool(tool: str) -> str:
    """Return the path of `java` or `javac`: that of JAVA_HOME, if it is set."""
    home = os.environ.get("JAVA_HOME")
    return str(Path(home) / "bin" / tool) if home else tool
