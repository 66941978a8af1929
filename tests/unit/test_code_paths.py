"""Where bytes can become code, and who may call other programs: the whole list, with a reason for each.

Decision 0022 tells why each is safe. A new entry belongs there, too.
"""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

import checkdam

ROOT = Path(checkdam.__file__).parent

MODULES = frozenset(
    {"pickle", "_pickle", "cloudpickle", "dill", "marshal", "shelve", "copyreg", "importlib", "imp", "runpy", "pkgutil"}
    | {"code", "codeop", "subprocess", "pty", "multiprocessing", "xmlrpc", "ctypes", "jsonpickle", "joblib"}
)
CALLS = frozenset({"eval", "exec", "compile", "__import__", "execfile"})
ATTRIBUTES = frozenset({"system", "popen", "execv", "execve", "execvp", "spawnv", "posix_spawn", "fork", "forkpty"})
KEYWORDS = frozenset({"shell", "allow_pickle", "Loader"})
UNSAFE = frozenset({"read_pickle", "unsafe_load", "full_load", "load_all", "import_module", "run_path", "run_module"})

ALLOWED = {
    "cli/demo/child.py": {"subprocess"},  # the demo's own job, with a fixed program
    "cli/job_file.py": {"runpy", "run_path"},  # the user's program, named on the command line
    "config.py": {"Loader"},  # yaml.SafeLoader, and only its parser
    "runtime/janitor.py": {"subprocess"},  # a fixed program
    "runtime/processes.py": {"subprocess"},  # ps, with a number
    "runtime/slot/client.py": {"cloudpickle"},  # packs the user's functions
    "runtime/slot/opening.py": {"cloudpickle"},  # a copy of the job's own functions
    "runtime/slot/server.py": {"cloudpickle"},  # the driver's setup, behind the token
    "runtime/spark/launch.py": {"subprocess"},  # the slot, with this interpreter
    "state/evolution.py": {"pickle"},  # PickleType that the job declares
    "state/hints.py": {"importlib", "import_module"},  # pyspark by a fixed name
    "state/pickling.py": {"pickle", "cloudpickle"},  # PickleType that the job declares
    "state/rows.py": {"pickle", "cloudpickle"},  # values between the job's own functions
    "testing/local_slot.py": {"cloudpickle"},
    "ui/serving.py": {"importlib"},  # importlib.resources
}


def _found(source: str) -> set[str]:
    found: set[str] = set()
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            found |= {alias.name.partition(".")[0] for alias in node.names} & MODULES
        elif isinstance(node, ast.ImportFrom) and node.module is not None and not node.level:
            found |= {node.module.partition(".")[0]} & MODULES
            found |= {alias.name for alias in node.names} & (UNSAFE | ATTRIBUTES)
        elif isinstance(node, ast.Call):
            name = node.func.id if isinstance(node.func, ast.Name) else ""
            found |= {name} & CALLS
            found |= {keyword.arg for keyword in node.keywords if keyword.arg is not None} & KEYWORDS
        elif isinstance(node, ast.Attribute):
            of_os = isinstance(node.value, ast.Name) and node.value.id == "os"
            found |= {node.attr} & (UNSAFE | (ATTRIBUTES if of_os else frozenset()))
            if isinstance(node.value, ast.Name) and (node.value.id, node.attr) == ("yaml", "load"):
                found.add("yaml.load")
    return found


def test_only_these_modules_can_turn_bytes_into_code_or_start_a_program() -> None:
    found = {str(file.relative_to(ROOT)): _found(file.read_text()) for file in sorted(ROOT.rglob("*.py"))}

    assert {module: names for module, names in found.items() if names} == ALLOWED


@pytest.mark.parametrize(
    "line",
    [
        "import pickle",
        "import importlib.util as u",
        "from cloudpickle import loads",
        "from os import system",
        "import os\nos.system('ls')",
        "eval('1')",
        "exec(text)",
        "np.load(f, allow_pickle=True)",
        "yaml.load(text)",
        "run('ls', shell=True)",
        "def f():\n    import marshal",
    ],
)
def test_the_search_finds(line: str) -> None:
    assert _found(line)
