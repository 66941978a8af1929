#!/bin/sh
# Make .venv ready: Checkdam installed from this directory, with the tools that its checks need.
# Does nothing if it is ready already. PYTHON names another interpreter than the first that is new enough.
set -eu
cd "$(dirname "$0")/.."

stop() {
    echo "$*" >&2
    exit 1
}

is_new_enough() {
    "$1" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null
}

find_python() {
    if [ -n "${PYTHON:-}" ]; then
        is_new_enough "$PYTHON" || stop "PYTHON=$PYTHON is not a Python of version 3.11 or newer; name another one."
        echo "$PYTHON"
        return
    fi
    for candidate in python3 python3.14 python3.13 python3.12 python3.11; do
        if is_new_enough "$candidate"; then
            echo "$candidate"
            return
        fi
    done
    stop "Checkdam needs Python 3.11 or newer: install it, or say where it is with PYTHON=/path/to/python3."
}

# A directory that was moved or copied holds scripts and an installation that point to the old place.
is_usable() {
    grep -qF -- "$(pwd -P)/.venv" .venv/pyvenv.cfg 2>/dev/null && .venv/bin/python -m pip --version >/dev/null 2>&1
}

wanted="$(cksum <pyproject.toml) $(pwd -P)"
if [ "$(cat .venv/.installed 2>/dev/null)" = "$wanted" ] && .venv/bin/python -c '' 2>/dev/null; then
    exit 0
fi

if ! is_usable; then
    python=$(find_python)
    "$python" -c 'import ensurepip, venv' 2>/dev/null ||
        stop "$python cannot make virtual environments: install its venv module (on Debian: apt-get install python3-venv)."
    echo "Making .venv with $("$python" --version)"
    "$python" -m venv --clear .venv
fi
rm -f .venv/.installed
echo "Installing Checkdam and its tools into .venv (PySpark is large: some minutes the first time)"
.venv/bin/python -m pip install --quiet --disable-pip-version-check --editable ".[dev,bench]"
echo "$wanted" >.venv/.installed
