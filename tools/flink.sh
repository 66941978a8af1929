#!/bin/sh
# Make build/flink ready and say where Flink's own command line is in it: tests let it operate a Checkdam job, and
# make bench runs Flink's libraries.
# It comes from PyPI, in a virtual environment of its own, and needs Java to run. Does nothing if it is ready already.
# FLINK names another version, PYTHON another interpreter to make the environment with.
set -eu
cd "$(dirname "$0")/.."

version=${FLINK:-2.3.0}
python=${PYTHON:-.venv/bin/python}
home=$(pwd -P)/build/flink

pip_quietly() {
    "$home/bin/python" -m pip "$@" --quiet --disable-pip-version-check --no-deps >&2
}

# Of two tests that need it at the same time, one installs it and the other waits.
mkdir -p build
if command -v flock >/dev/null; then
    exec 9>build/flink.lock
    flock 9
fi

wanted="$version $home"
if [ "$(cat "$home/.installed" 2>/dev/null)" != "$wanted" ]; then
    echo "Installing Flink $version's command line into build/flink (once, some hundred megabytes)" >&2
    rm -rf "$home"
    "$python" -m venv "$home"
    pip_quietly install "apache-flink-libraries==$version"
    # The scripts are in the package with the Python API. It is compiled for few versions of Python, but what is
    # compiled in it is not wanted: so the wheel of any of them will do, and is unpacked beside the libraries.
    pip_quietly download --dest "$home/wheels" --only-binary=:all: --python-version 3.11 --platform manylinux2014_x86_64 \
        "apache-flink==$version"
    "$home/bin/python" - "$home"/wheels/*.whl <<'UNPACK'
import sys, sysconfig, zipfile

with zipfile.ZipFile(sys.argv[1]) as wheel:
    names = [name for name in wheel.namelist() if name.startswith(("pyflink/bin/", "pyflink/conf/"))]
    wheel.extractall(sysconfig.get_path("purelib"), names)
UNPACK
    rm -rf "$home/wheels"
    echo "$wanted" >"$home/.installed"
fi

flink=$("$home/bin/python" -c 'import sysconfig; print(sysconfig.get_path("purelib"))')/pyflink/bin/flink
chmod +x "$flink"
echo "$flink"
