#!/usr/bin/env bash
# gotest.sh [FLAG...] -- PACKAGE...: `go test`. What fails, fails: only a test that test/second-run.txt names is run once
# more, and both is said. A data race, a panic or a package that does not build is never run again.
set -uo pipefail
cd "$(dirname "$0")/.."
list=test/second-run.txt
flags=()
while [ $# -gt 0 ] && [ "$1" != -- ]; do flags+=("$1"); shift; done
[ "${1:-}" = -- ] && shift
log=$(mktemp)
trap 'rm -f "$log"' EXIT

"${GO:-go}" test "${flags[@]}" "$@" 2>&1 | tee "$log" | grep --line-buffered -v '^=== '
[ "${PIPESTATUS[0]}" = 0 ] && exit 0
if grep -Eq 'WARNING: DATA RACE|^panic:|\[(build|setup) failed\]|^fatal error:' "$log"; then exit 1; fi

# The tests that failed, each with its package, which comes behind them.
failed=$(awk '/^--- FAIL: / {t[n++] = $3} $1 == "FAIL" && $2 ~ "/" {if (!n) print $2, "?"; for (i = 0; i < n; i++) print $2, t[i]; n = 0}' "$log")
[ -n "$failed" ] || exit 1
named() { awk -v p="$1" -v t="$2" '!/^#/ && $1 == p && $2 == t {found = 1} END {exit !found}' "$list"; }
# What each of them said, shortly and last, for whoever sees nothing but the end of a log.
while read -r _ name; do
  awk -v t="$name" '
    $1 == "===" {now = $3; next}
    /^ *--- / {now = $3; next}
    {split(now, path, "/")}
    path[1] == t && /^ +[a-z0-9_]+_test\.go:[0-9]+: / {said[n++] = substr($0, 1, 400)}
    END {for (i = n > 12 ? n - 12 : 0; i < n; i++) print said[i]}' "$log"
done <<<"$failed"
while read -r package name; do
  named "$package" "$name" || { echo "failed: $package $name (not in $list: not run again)"; exit 1; }
done <<<"$failed"
while read -r package name; do
  echo "second run of $package $name: $(awk -v p="$package" -v t="$name" '$1 == p && $2 == t' "$list")"
  "${GO:-go}" test "${flags[@]}" -count=1 -run "^$name\$" "$package" || exit 1
  echo "passed in the second run only: $package $name"
done <<<"$failed"
