#!/bin/sh
# Make build/pyflink ready and say where Python is in it: make bench compares windows with PyFlink's.
# PyFlink comes from PyPI, in a virtual environment of its own, since it wants older versions of what Checkdam uses. It
# needs Java to run. Does nothing if it is ready already. PYFLINK names another version, PYTHON another interpreter.
set -eu
cd "$(dirname "$0")/.."

version=${PYFLINK:-2.3.0}
home=$(pwd -P)/build/pyflink

stop() {
    echo "$*" >&2
    exit 1
}

# PyFlink is compiled for few versions of Python, which .venv need not be one of.
is_known_to_pyflink() {
    "$1" -c 'import ensurepip, sys, venv; sys.exit(not (3, 9) <= sys.version_info[:2] <= (3, 12))' 2>/dev/null
}

find_python() {
    for candidate in "${PYTHON:-.venv/bin/python}" .venv/bin/python python3 python3.12 python3.11 python3.10 python3.9; do
        if is_known_to_pyflink "$candidate"; then
            echo "$candidate"
            return
        fi
    done
    stop "PyFlink needs Python 3.9 to 3.12: install one of them, or say where it is with PYTHON=/path/to/python3."
}

# The interpreter that the environment was made with may be gone.
is_ready() {
    [ "$(cat "$home/.installed" 2>/dev/null)" = "$wanted" ] && "$home/bin/python" -c '' 2>/dev/null
}

wanted="$version $home"
if ! is_ready; then
    python=$(find_python)
    echo "Installing PyFlink $version into build/pyflink (once, some hundred megabytes)" >&2
    mkdir -p build
    rm -rf "$home"
    "$python" -m venv "$home"
    log=$(mktemp)
    trap 'rm -f "$log"' EXIT
    "$home/bin/python" -m pip install --quiet --disable-pip-version-check "apache-flink==$version" >"$log" 2>&1 || {
        tail -n 5 "$log" >&2
        stop "PyFlink $version could not be installed from PyPI with $("$python" --version)."
    }
    echo "$wanted" >"$home/.installed"
fi

echo "$home/bin/python"
