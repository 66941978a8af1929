#!/bin/sh
# Fetch anew the libraries that the web page is served with: pinned versions, each package checked against its hash.
# To move to another version: change its line below, run this, and put in the hash that it says it found.
set -eu
cd "$(dirname "$0")/.."
target=src/checkdam/server/page/static/vendor

stop() {
    echo "$*" >&2
    exit 1
}

command -v npm >/dev/null 2>&1 || stop "npm is needed to fetch the libraries (on Debian: sudo apt-get install npm)."
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

# fetch NAME VERSION SHA256: unpack the package into $work/NAME
fetch() {
    (cd "$work" && npm pack --silent "$1@$2" >/dev/null) || stop "$1 $2 could not be fetched."
    found=$(sha256sum "$work/$1-$2.tgz" | cut -d ' ' -f 1)
    [ "$found" = "$3" ] || stop "$1 $2 has another hash than the one known: $found"
    mkdir -p "$work/$1" "$target/$1"
    tar -xzf "$work/$1-$2.tgz" -C "$work/$1" --strip-components=1
    echo "$1 $2" >>"$work/versions"
}

# keep NAME FILE...: copy these files of the package, and its licence
keep() {
    name=$1
    shift
    rm -f "$target/$name"/*
    for file in LICENSE "$@"; do
        # A map of the sources would be asked for by the browser and is not here.
        sed '/^\/\/# sourceMappingURL=/d' "$work/$name/$file" >"$target/$name/$(basename "$file")"
    done
    mv "$target/$name/LICENSE" "$target/$name/LICENSE.txt"
}

fetch preact 10.29.8 b18cb0a457f3d43c7bb30391a74ade7d13e03bc6e77915e061c70c0fe1123299
fetch htm 3.1.1 2425b9bee11409177bcabc7f32e319926fc6690c1701c0b257c88bdff2d5ba90
fetch uplot 1.6.32 4b8a8191e425658e3ea8c8c1314b0fc679c861ee3a1af2b20c7b16ba50b5133d

keep preact dist/preact.module.js hooks/dist/hooks.module.js
# Without a build step there is nobody to resolve the bare name; an import map would be an inline script.
sed -i 's|from"preact"|from"./preact.module.js"|' "$target/preact/hooks.module.js"
keep htm dist/htm.module.js
keep uplot dist/uPlot.esm.js dist/uPlot.min.css
cp "$work/versions" "$target/VERSIONS.txt"
