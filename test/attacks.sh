#!/usr/bin/env bash
# Tries the doors of the built product from outside, on its demo, and ends with 1 where one is open.
#   test/attacks.sh            all doors
#   test/attacks.sh PATTERN    those whose names match
#   test/attacks.sh --control  what tries to fool the repairs: a dead GPU, a recording in place of an exporter, a deaf controller
#                              (minutes; test/e2e.sh runs them too)
# AUSPEX_BIN names the product (default bin/auspex, as `make build` builds it).
set -euo pipefail
cd "$(dirname "$0")/.."
export AUSPEX_E2E=1 AUSPEX_BIN=${AUSPEX_BIN:-$PWD/bin/auspex}
[ -x "$AUSPEX_BIN" ] || { echo "attacks: $AUSPEX_BIN is missing: make build" >&2; exit 1; }
log=$(mktemp)
trap 'rm -f "$log"' EXIT
code=0
tests="^TestAttacks\$/${1:-.}"
[ "${1:-}" != --control ] || tests='^(TestADeadGPUNeverComesBackToThePool|TestARecordingVerifiesNoRepair|TestABMCThatAnswersAndDoesNothingEndsInFailed)$'
go test -count=1 -timeout 15m -v -run "$tests" ./internal/e2e >"$log" 2>&1 || code=$?
grep -E '^(door |--- PASS)' "$log" || true
if [ $code != 0 ]; then
  grep -v '^door ' "$log" | tail -60 >&2
  grep '^door OPEN' "$log" | sed 's/^door OPEN: /attacks: open: /' >&2 || true
  exit 1
fi
echo "attacks: every door is shut"
