#!/usr/bin/env bash
# The tests against real peers: starts them, sets the variables that the tests ask for, and stops them.
#   test/e2e.sh            everything
#   test/e2e.sh PATTERN    only the tests of internal/e2e whose names match
# SUITES names the packages that are tested with their peers beside internal/e2e (default: those that have some; all: every
# package). Root is needed for Slurm. AUSPEX_BIN names the product (default bin/auspex, as `make e2e` builds it).
set -euo pipefail
cd "$(dirname "$0")/.."
peers=$PWD/test/peers state=$(mktemp -d /tmp/auspex-e2e.XXXXXX)
chmod 711 "$state" # munged runs as a user of its own
began=$SECONDS
started=()

stop() {
  local code=$?
  trap - EXIT
  for p in "${started[@]}"; do "$peers/$p.sh" stop "$state/$p" >/dev/null 2>&1 || true; done
  if [ $code = 0 ]; then rm -rf "$state"; else echo "e2e: logs of the peers are in $state" >&2; fi
  exit $code
}
trap stop EXIT
trap 'exit 130' INT TERM

# start NAME... : starts peers side by side and exports what they print. The count of BMCs is that of ipmi.
start() {
  local name lines failed=
  declare -A job
  for name; do
    mkdir -p "$state/$name"; started=("$name" "${started[@]}")
    "$peers/$name.sh" start "$state/$name" $([ "$name" != ipmi ] || echo 2) >"$state/$name.vars" & job[$name]=$!
  done
  for name; do wait "${job[$name]}" || failed+=" $name"; done
  [ -z "$failed" ] || { echo "e2e: could not be started:$failed" >&2; exit 1; }
  for name; do lines=$(cat "$state/$name.vars"); set -a; eval "$lines"; set +a; done
  echo "e2e: started $* ($((SECONDS - began)) s)"
}

export AUSPEX_E2E=1 AUSPEX_REQUIRE_ENGINE=1 AUSPEX_BIN=${AUSPEX_BIN:-$PWD/bin/auspex}
[ -x "$AUSPEX_BIN" ] || { echo "e2e: $AUSPEX_BIN is missing: make build" >&2; exit 1; }
"$AUSPEX_BIN" engine fetch # once; later runs find it in the cache

"$peers/install.sh"
start alertmanager promtool chromium ipmi sushy redfishutilities schemathesis slurm kube
# The whole product. It waits for real processes most of its time: a demo takes a fifth of a core while it runs, and two
# seconds of one to start. So tests that do not measure time run side by side, four on two cores.
test/gotest.sh -count=1 -timeout 40m -v -parallel $(($(nproc) * 2)) -run "${1:-.}" -- ./internal/e2e/...
echo "e2e: the product passed ($((SECONDS - began)) s)"
[ $# = 0 ] || exit 0

start postgres kafka sushytools cloudinit tinkerbell rsyslog journal slurmdbd
if "$peers/slurm24.sh" install >"$state/slurm24.log" 2>&1; then start slurm24 slurmdbd24
else export AUSPEX_WITHOUT=slurm24; echo "e2e: without slurm24, for which a chroot has to be made: $(tail -1 "$state/slurm24.log")"; fi
# The suites of the stages, this time with their peers, and every page in both themes and languages; ui/node_modules holds
# the accessibility checker.
[ -d ui/node_modules ] || (cd ui && npm ci --silent)
export AUSPEX_REQUIRE_NPM=1
# Of control, five minutes at most, the four one after the other or side by side; make chaos runs them all.
export AUSPEX_CHAOS_RUNS=1000 AUSPEX_POSTGRES_CHAOS_RUNS=100 AUSPEX_KUBERNETES_CHAOS_RUNS=20 AUSPEX_CHAOS_FOR=75s
case ${SUITES:-} in
  '') suites=(./internal/bmc/... ./internal/bus/... ./internal/store/... ./internal/cmdb/... ./internal/discover/... ./internal/enrol/... ./internal/provision ./deploy/templates ./internal/sim/ipmi/... ./internal/sim/redfish/... ./internal/sim/gnmi/... ./internal/sim/kube/...
    ./collectors/ipmi/... ./collectors/kubernetes/... ./collectors/redfish/... ./collectors/slurm/... ./collectors/syslog ./internal/slurm/... ./dashboards/...
    ./pipeline/detect ./correlator ./predictor ./control/... ./api/...) ;;
  all) PKG=$(go list ./... | grep -v /internal/e2e | paste -sd' ') make test; suites=() ;;
  *) read -ra suites <<<"$SUITES" ;;
esac
[ ${#suites[@]} = 0 ] || test/gotest.sh -count=1 -timeout 30m -- "${suites[@]}"
echo "e2e: all passed in $((SECONDS - began)) s"
