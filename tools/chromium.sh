#!/bin/sh
# Make sure that the tests of the web page find Chromium. Where there is none, install Debian's if that is allowed.
set -eu

stop() {
    echo "$*" >&2
    exit 1
}

as_root() {
    if [ "$(id -u)" -eq 0 ]; then
        "$@"
    else
        sudo -n "$@"
    fi
}

command -v chromium >/dev/null 2>&1 && exit 0

advice="install it (on Debian: sudo apt-get install chromium)."
command -v apt-get >/dev/null 2>&1 && as_root true 2>/dev/null ||
    stop "The tests of the web page need Chromium, and none was found: $advice"

echo "Installing Chromium for the tests of the web page (Debian's)"
log=$(mktemp)
trap 'rm -f "$log"' EXIT
as_root apt-get update >"$log" 2>&1 || true # the lists there are may do; if not, the installation tells
as_root env DEBIAN_FRONTEND=noninteractive apt-get install -y --no-install-recommends chromium >>"$log" 2>&1 || true
command -v chromium >/dev/null 2>&1 && exit 0
tail -n 5 "$log" >&2
stop "The tests of the web page need Chromium, and it could not be installed: $advice"
