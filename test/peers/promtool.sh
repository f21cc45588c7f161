#!/usr/bin/env bash
# promtool 3.15, built once from the Go module proxy (then cached).
# promtool.sh install | start DIR | stop DIR      prints PROMTOOL; nothing runs

. "$(dirname "$0")/lib.sh"
version=v0.315.0 # module version of release 3.15.0

install() {
  [ -x "$cache/prometheus-$version/promtool" ] && return
  local src=$cache/src-promtool-$version pkg=github.com/prometheus/prometheus/cmd/promtool
  mkdir -p "$src" "$cache/prometheus-$version"; cd "$src"
  [ -f go.mod ] || go mod init peers/promtool 2>/dev/null
  # Not `go install`: the module has replace directives. The tag drops the cloud service discoveries.
  CGO_ENABLED=0 go get $pkg@$version 2>"$cache/promtool.log" || { tail -3 "$cache/promtool.log" >&2; die "go get"; }
  CGO_ENABLED=0 go build -mod=mod -trimpath -tags remove_all_sd -o "$cache/prometheus-$version/" -ldflags="-s -w" $pkg
}

up() { echo "PROMTOOL=$cache/prometheus-$version/promtool"; }
main
