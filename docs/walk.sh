#!/usr/bin/env bash
# The way of a new user, from the sources to a small fleet, each step with its time: docs/walk.sh [BUILD]. It builds unless BUILD, a finished build folder,
# is named, and leaves nothing behind. docs/results/walk.md is what it printed; a test runs it.
set -euo pipefail
source=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
build=${1:-}
work=$(mktemp -d /tmp/quern-walk-XXXXXX)
chmod 755 "$work"
unset QUERN_SOCKET QUERN_CACHE_DIR QUERN_DAEMON QUERN_LIBRARY QUERN_CONFIG QUERN_NO_START XDG_RUNTIME_DIR XDG_CACHE_HOME XDG_CONFIG_HOME
export HOME=$work/home QUERN_MEASURE=never
if [[ -z ${QUERN_NVRTC:-} && -d $source/.quern/nvrtc ]]; then export QUERN_NVRTC=$source/.quern/nvrtc; fi
mkdir "$HOME"

at() { # at NAME COMMAND...: with socket and cache of their own
  local name=$1
  shift
  env QUERN_SOCKET="$work/$name/s" QUERN_CACHE_DIR="$work/$name/cache" "$@"
}

finish() {
  local name
  for name in one two service four five six seven; do
    if [[ -S $work/$name/s ]]; then at "$name" "$work/venv/bin/quern" stop >/dev/null 2>&1 || true; fi
  done
  rm -rf "$work"
}
trap finish EXIT

step() { # step TITLE FUNCTION: runs it, and prints its output and its time
  local began now
  printf '\n## %s\n\n' "$1"
  began=$(date +%s%N)
  "$2" 2>&1 | sed "s#$work#WORK#g; s/^/    /"
  now=$(date +%s%N)
  printf '\n%s.%03d s\n' $(((now - began) / 1000000000)) $(((now - began) / 1000000 % 1000))
}

compile() {
  "$source/tools/dev" build programs >/dev/null 2>&1
  echo "tools/dev build: done"
}

c_program() {
  # shellcheck disable=SC2046
  cc "$source/examples/hello.c" $(PKG_CONFIG_PATH=$build/meson-uninstalled pkg-config --cflags --libs quern) -Wl,-rpath,"$build/capi" -o "$work/hello"
  for _ in 1 2; do at one env QUERN_DAEMON="$build/daemon/quernd" "$work/hello" "$source/examples/ntrans_b1.qg" sm_90a; done
  at one "$build/tools/quern" stop
}

pip_install() {
  python3 -m venv "$work/venv"
  "$work/venv/bin/pip" install -q "$source" -Csetup-args=-Dprebuilt="$build"
  "$work/venv/bin/pip" list 2>/dev/null | grep quern
}

python_program() {
  at one "$work/venv/bin/python" - <<'END'
import quern
with quern.Graph("mine") as graph, quern.Client() as client:
    x, w = graph.input("x", "f16", [64, 128]), graph.input("w", "f16", [128, 256], const=True)
    graph.output((x @ w).silu() * 0.5)
    print(client.get(graph, "sm_90a"))
END
}

service() {
  if ((EUID != 0)); then
    echo "left out: only root can be two users"
    return
  fi
  mkdir -m 755 "$work/service"
  printf '[quernd]\nallow-uids = 65534\n' > "$work/quern.conf"
  local quern=("$work"/venv/lib/python*/site-packages/quern/bin/quern)
  at service env QUERN_CONFIG="$work/quern.conf" "${quern[0]}d"
  as_nobody() { setpriv --reuid=65534 --regid=65534 --clear-groups env QUERN_SOCKET="$work/service/s" "$@"; }
  cp "$source/examples/ntrans_b1.qg" "$work/graph.qg"
  as_nobody QUERN_TRUST_UIDS=0 "${quern[0]}" get "$work/graph.qg" -t sm_90a --no-start | head -3
  if as_nobody QUERN_TRUST_UIDS=0 "${quern[0]}" stop; then
    echo "another user has stopped the daemon" >&2
    return 1
  fi
}

pack() {
  mkdir -p "$work/two"
  chmod 700 "$work/two"
  at one "$work/venv/bin/quern" export "$work/plans.pack"
  at two "$work/venv/bin/quern" import "$work/plans.pack"
  at two "$work/venv/bin/quern" get "$source/examples/ntrans_b1.qg" -t sm_90a --no-compile | head -3
}

fleet() {
  local server node nodes=(four five six seven) redis
  server=$(command -v valkey-server || command -v redis-server || true)
  if [[ -z $server ]]; then
    echo "left out: there is neither valkey-server nor redis-server"
    return
  fi
  "$server" --port 0 --unixsocket "$work/redis" --save "" --dir "$work" >/dev/null &
  redis=$!
  printf '[quernd]\nfleet = unix:%s/redis\nsearchers = 0\n' "$work" > "$work/fleet.conf"
  on() { at "$1" env QUERN_CONFIG="$work/fleet.conf" "$work/venv/bin/quern" "${@:2}"; }
  for node in "${nodes[@]}"; do
    mkdir -m 700 "$work/$node"
    on "$node" stats >/dev/null
  done
  # The same six graphs on all four at once.
  local jobs=()
  for node in "${nodes[@]}"; do
    on "$node" prewarm "$source"/examples/*_b1.qg -t sm_90a >/dev/null &
    jobs+=($!)
  done
  wait "${jobs[@]}"
  on four stats | grep '^fleet '
  for node in "${nodes[@]}"; do
    echo "$node: $(on "$node" ls --json | grep -c '"key"') plans, of which $(on "$node" stats | sed -n 's/^jobs_done *//p') compiled here"
    on "$node" stop >/dev/null
  done
  kill "$redis"
}

echo "# A walk"
mkdir -m 700 "$work/one"
if [[ -z $build ]]; then
  step "One command" compile
  build=$source/build
fi
step "A C program" c_program
step "pip install" pip_install
step "A Python program" python_program
step "A service with an allowed user" service
step "A pack for a second cache" pack
step "A fleet of four that compiles once" fleet
