#!/bin/sh
# Make sure that Spark will find Java 17 or newer, and with the argument "jdk" that there is a compiler as well. Where
# there is none, install Debian's headless one if that is allowed.
set -eu

kind=${1:-jre}

stop() {
    echo "$*" >&2
    exit 1
}

# The major version of the java that Spark would start; nothing if there is none.
java_version() {
    java=${JAVA_HOME:+$JAVA_HOME/bin/}java
    { "$java" -version 2>&1 || true; } | sed -n 's/.*version "\(1\.\)\{0,1\}\([0-9][0-9]*\).*/\2/p' | head -n 1
}

is_new_enough() {
    [ "$(java_version || true)" -ge 17 ] 2>/dev/null
}

is_ready() {
    is_new_enough && { [ "$kind" = jre ] || command -v "${JAVA_HOME:+$JAVA_HOME/bin/}javac" >/dev/null 2>&1; }
}

as_root() {
    if [ "$(id -u)" -eq 0 ]; then
        "$@"
    else
        sudo -n "$@"
    fi
}

is_ready && exit 0
if [ "$kind" = jdk ]; then
    need="The comparison with Flink needs a Java compiler (JDK 17 or newer)"
else
    need="Spark needs Java 17 or newer"
fi
[ -z "${JAVA_HOME:-}" ] || stop "$need, which JAVA_HOME=$JAVA_HOME is not: point it to one, or unset it."

advice="install it (on Debian: sudo apt-get install openjdk-17-$kind-headless) or set JAVA_HOME to where it is."
command -v apt-get >/dev/null 2>&1 && as_root true 2>/dev/null || stop "$need, and none was found: $advice"

echo "Installing Java (Debian's headless one)"
log=$(mktemp)
trap 'rm -f "$log"' EXIT
as_root apt-get update >"$log" 2>&1 || true # the lists there are may do; if not, the installation tells
for version in 17 21 25; do
    package=openjdk-$version-$kind-headless
    apt-cache show "$package" >/dev/null 2>&1 || continue
    as_root env DEBIAN_FRONTEND=noninteractive apt-get install -y --no-install-recommends "$package" >>"$log" 2>&1 || break
    is_ready && exit 0
    break
done
tail -n 5 "$log" >&2
stop "$need, and it could not be installed: $advice"
