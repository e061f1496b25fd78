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
  for name in one pip two service four five six seven; do
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

clone() {
  git clone -q "$source" "$work/quern"
  git -C "$work/quern" log -1 --format='%h %s'
}

compile() {
  "$source/tools/dev" build programs >"$work/build.log" 2>&1 || {
    tail -20 "$work/build.log"
    return 1
  }
  echo "tools/dev build programs: done"
}

# The programs of a user, who has a graph in mind.
cat > "$work/mine.c" <<'END'
#include <quern.h>
#include <stdio.h>

int main(void) {
  const int64_t x_shape[] = {64, 128}, w_shape[] = {128, 256};
  quern_client* client;
  quern_graph* graph;
  quern_value operands[2], product, y;
  quern_plan* plan;
  quern_plan_info info = {.struct_size = sizeof info};
  quern_error error;
  if (quern_open(NULL, &client, &error) || quern_graph_new("mine", &graph, &error) ||
      quern_graph_input(graph, "x", QUERN_F16, 2, x_shape, NULL, 0, &operands[0], &error) ||
      quern_graph_input(graph, "w", QUERN_F16, 2, w_shape, NULL, QUERN_INPUT_CONST, &operands[1], &error) ||
      quern_graph_op(graph, "matmul", operands, 2, NULL, 0, NULL, &product, &error) ||
      quern_graph_op(graph, "silu", &product, 1, NULL, 0, "y", &y, &error) || quern_graph_output(graph, y, &error) ||
      quern_get(client, graph, "sm_90a", NULL, &plan, &error) || quern_plan_describe(plan, &info, &error))
    return fprintf(stderr, "%s\n", error.message), 1;
  printf("%s: %zu kernels, %zu bytes of code\n", info.origin == QUERN_ORIGIN_HIT ? "hit" : "miss", info.launch_count, info.cubin_size);
  quern_plan_release(plan);
  quern_graph_free(graph);
  quern_close(client);
  return 0;
}
END
cat > "$work/mine.py" <<'END'
import quern
with quern.Graph("mine") as graph, quern.Client() as client:
    x, w = graph.input("x", "f16", [64, 128]), graph.input("w", "f16", [128, 256], const=True)
    graph.output((x @ w).silu() * 0.5)
    print(client.get(graph, "sm_90a"))
END

c_program() {
  # shellcheck disable=SC2046
  cc "$work/mine.c" $(PKG_CONFIG_PATH=$build/meson-uninstalled pkg-config --cflags --libs quern) -Wl,-rpath,"$build/capi" -o "$work/mine"
  for _ in 1 2; do at one env QUERN_DAEMON="$build/daemon/quernd" "$work/mine"; done
}

python_program() {
  at one env PYTHONPATH="$source/bindings/python" QUERN_LIBRARY="$build/capi/libquern.so.0" QUERN_DAEMON="$build/daemon/quernd" python3 "$work/mine.py"
  at one "$build/tools/quern" stop
}

pip_install() {
  python3 -m venv "$work/venv"
  "$work/venv/bin/pip" install -q "$source" --config-settings=setup-args=-Dprebuilt="$build"
  "$work/venv/bin/pip" list 2>/dev/null | grep quern
}

pip_programs() {
  # shellcheck disable=SC2046
  cc "$work/mine.c" $(PKG_CONFIG_PATH=$("$work/venv/bin/python" -c 'import quern; print(quern.pkg_config_path())') pkg-config --cflags --libs quern) \
    -o "$work/mine-pip"
  at pip "$work/mine-pip"
  at pip "$work/venv/bin/python" "$work/mine.py"
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
  at pip "$work/venv/bin/quern" export "$work/plans.pack"
  at two "$work/venv/bin/quern" import "$work/plans.pack"
  QUERN_STRICT=$work/missing at two "$work/mine-pip"
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
mkdir -m 700 "$work/one" "$work/pip"
if [[ -z $build ]]; then
  step "A clone" clone
  source=$work/quern
  step "One command" compile
  build=$source/build
  export QUERN_NVRTC=${QUERN_NVRTC:-$source/.quern/nvrtc}
  if [[ ! -d $QUERN_NVRTC ]]; then unset QUERN_NVRTC; fi # there is a toolkit
fi
step "A C program" c_program
step "A Python program" python_program
step "pip install" pip_install
step "The same programs with what pip has installed" pip_programs
step "A service with an allowed user" service
step "A pack for a second cache" pack
step "A fleet of four that compiles once" fleet
