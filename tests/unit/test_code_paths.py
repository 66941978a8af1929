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
STARTING = ("system", "popen", "exec", "spawn", "posix_spawn", "fork", "create_subprocess")
"""How the names of functions begin that start a program, in `os` and `asyncio`."""
KEYWORDS = frozenset({"shell", "allow_pickle", "Loader"})
UNSAFE = frozenset(
    {"read_pickle", "unsafe_load", "full_load", "load_all", "import_module", "run_path", "run_module"}
    | {"yaml.load", "UnsafeLoader", "FullLoader"}
)

ALLOWED = {
    "backends/freed_memory.py": {"ctypes"},  # malloc_trim of the C library
    "cli/demo/child.py": {"subprocess"},  # the demo's own job, with a fixed program
    "cli/job_file.py": {"runpy", "run_path"},  # the user's program, named on the command line
    "config_file.py": {"Loader"},  # yaml.SafeLoader, and only its parser
    "graph/pickle_check.py": {"cloudpickle"},  # packs the user's functions, to name what cannot be packed
    "processes.py": {"subprocess"},  # ps, with a number
    "runtime/janitor.py": {"subprocess"},  # a fixed program
    "runtime/slot/slot_client.py": {"cloudpickle"},  # packs the user's functions
    "runtime/slot/generator_thread.py": {"ctypes"},  # raises GeneratorExit in a thread of the user's
    "runtime/slot/operator_setup.py": {"cloudpickle"},  # a copy of the job's own functions
    "runtime/slot/slot_server.py": {"cloudpickle"},  # the driver's setup, behind the token
    "runtime/spark/slot_launcher.py": {"subprocess"},  # the slot, with this interpreter
    "state_reader/spark_source.py": {"subprocess"},  # the interpreter that Spark will use, with a fixed program
    "types/record_copies.py": {"copyreg"},  # the names of a class's slots
    "types/evolution.py": {"pickle"},  # PickleType that the job declares
    "types/hints.py": {"importlib", "import_module"},  # pyspark by a fixed name
    "types/conversion.py": {"pickle", "cloudpickle"},  # PickleType that the job declares
    "types/rows.py": {"pickle", "cloudpickle"},  # values between the job's own functions
    "testing/local_slot.py": {"cloudpickle"},
    "server/page/page_files.py": {"importlib"},  # importlib.resources
}


def _found(source: str) -> set[str]:
    found: set[str] = set()
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            found |= {part for alias in node.names for part in alias.name.split(".")} & MODULES
            found |= {"yaml under another name" for alias in node.names if alias.name == "yaml" and alias.asname}
        elif isinstance(node, ast.ImportFrom) and node.module is not None and not node.level:
            names = {alias.name for alias in node.names}
            found |= ({*node.module.split(".")} | names) & MODULES
            found |= ({f"{node.module}.{name}" for name in names} | names) & UNSAFE
            if node.module in ("os", "asyncio"):
                found |= {name for name in names if name.startswith(STARTING)}
        elif isinstance(node, ast.Call):
            name = node.func.id if isinstance(node.func, ast.Name) else ""
            found |= {name} & CALLS
            found |= {keyword.arg for keyword in node.keywords if keyword.arg is not None} & KEYWORDS
        elif isinstance(node, ast.Attribute):
            owner = node.value.id if isinstance(node.value, ast.Name) else ""
            found |= {node.attr, f"{owner}.{node.attr}"} & UNSAFE
            if owner in ("os", "asyncio") and node.attr.startswith(STARTING):
                found.add(node.attr)
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
        "from pyspark.cloudpickle import loads",
        "from pyspark import cloudpickle",
        "from yaml import load",
        "import yaml as y",
        "import os\nos.execl('ls')",
        "import os\nos.posix_spawnp('ls')",
        "import asyncio\nasyncio.create_subprocess_exec('ls')",
    ],
)
def test_the_search_finds(line: str) -> None:
    assert _found(line)
