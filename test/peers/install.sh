#!/usr/bin/env bash
# Installs peers, all of them or those named, side by side; a log each in the cache. Debian's packages are installed one
# after the other (lib.sh), and what is compiled waits for what was compiled before: both cores are busy with one.
set -uo pipefail
cd "$(dirname "$0")"
cache=${PEERS_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/auspex-peers}
mkdir -p "$cache"
all=(kafka chromium ipmi slurm slurmdbd slurm24 postgres sushy sushytools redfishutilities cloudinit schemathesis rsyslog journal promtool alertmanager kube tinkerbell)
names=("${@:-${all[@]}}")
declare -A job
compiled=(promtool alertmanager kube tinkerbell)
one() { local began=$SECONDS; ./"$1".sh install >"$cache/install-$1.log" 2>&1 && echo "installed $1 ($((SECONDS - began)) s)"; }
built=
for n in "${names[@]}"; do
  if [[ " ${compiled[*]} " == *" $n "* ]]; then built+=" $n"; continue; fi
  one "$n" & job[$n]=$!
done
failed=
for n in $built; do one "$n" || failed+=" $n"; done
for n in "${!job[@]}"; do wait "${job[$n]}" || failed+=" $n"; done
# A chroot cannot be made everywhere: e2e.sh says so, and goes without.
for n in $failed; do [ $n != slurm24 ] || echo "install of slurm24 failed: $(tail -1 "$cache/install-$n.log")"; done
failed=${failed// slurm24/}
for n in $failed; do echo "install of $n failed:" >&2; tail -5 "$cache/install-$n.log" >&2; done
[ -z "$failed" ]
