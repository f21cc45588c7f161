# Sourced by the scripts of this folder; bash. Each is called as
#   NAME.sh install        fetch or build what the peer needs (cached, idempotent)
#   NAME.sh start DIR      install, start on loopback, print KEY=VALUE lines (also in DIR/env)
#   NAME.sh stop DIR       stop what start started; state stays in DIR, so start resumes it
# A start on a DIR whose peer runs prints the same lines again. Ports are free ones from 20000-31999.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
cache=${PEERS_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/auspex-peers}
verb=${1:-} dir=${2:-}
mkdir -p "$cache"

die() { echo "$(basename "$0"): $*" >&2; exit 1; }

# need PROGRAM PACKAGE...: install Debian packages unless PROGRAM is there.
need() {
  PATH=$PATH:/usr/sbin:/sbin command -v "$1" >/dev/null && return
  [ "$(id -u)" = 0 ] || die "$1 is missing; as root: apt-get install $(printf '%s ' "${@:2}")"
  ( # one after the other; the lists of packages are fetched once an hour
    flock 9
    [ -n "$(find "$cache/apt.updated" -mmin -60 2>/dev/null)" ] || { apt-get update -qq >/dev/null && touch "$cache/apt.updated"; } || true
    DEBIAN_FRONTEND=noninteractive apt-get -o DPkg::Lock::Timeout=300 install -y -qq --no-install-recommends "${@:2}" >"$cache/apt.log" 2>&1 ||
      { tail -5 "$cache/apt.log" >&2; die "apt-get install ${*:2}"; }
  ) 9>"$cache/apt.lock"
}

# bound udp|tcp PORT: something listens there. Never probe by connecting: ipmi_sim dies of it.
bound() { grep -hqs ":$(printf %04X "$2") 0*:0000 " "/proc/net/$1" "/proc/net/${1}6"; }

# ports N: the first of N free consecutive ports; the same for every start in DIR.
ports() {
  local p q free
  if [ -f "$dir/ports" ]; then cat "$dir/ports"; return; fi
  while :; do
    p=$((20000 + RANDOM % (12000 - $1))) free=1
    for ((q = p; q < p + $1; q++)); do if bound tcp $q || bound udp $q; then free=0; fi; done
    [ $free = 0 ] || break
  done
  echo $p | tee "$dir/ports"
}

# born PID: its start time, which tells a reused pid apart; nothing for a zombie.
born() { sed -n '/) Z /d; s/.*) //p' "/proc/$1/stat" 2>/dev/null | cut -d' ' -f20; }
alive() { [ -f "$1" ] && read -r pid since <"$1" && [ -n "$since" ] && [ "$(born "$pid")" = "$since" ]; }

# spawn NAME COMMAND...: run in the background, log to DIR/NAME.log, remember the pid.
spawn() {
  alive "$dir/$1.pid" && return
  nohup setsid "${@:2}" >>"$dir/$1.log" 2>&1 </dev/null &
  echo "$! $(born $!)" >"$dir/$1.pid"
}

# wait_for SECONDS COMMAND...: until COMMAND succeeds.
wait_for() {
  local i; for ((i = 0; i < $1 * 10; i++)); do "${@:2}" >/dev/null 2>&1 && return; sleep 0.1; done
  tail -n 5 "$(ls -t "$dir"/*.log | head -1)" >&2 || true; die "not ready after $1 s: ${*:2}"
}
http_ok() { curl -fsSk --max-time 2 -o /dev/null "$@"; }

# stop_all: terminate what spawn started, newest first; kill -9 after 5 s.
stop_all() {
  local f i
  for f in $(ls -t "$dir"/*.pid 2>/dev/null); do
    alive "$f" && kill "$pid" && for ((i = 0; i < 50; i++)); do alive "$f" || break; sleep 0.1; done
    alive "$f" && kill -9 "$pid"
    rm -f "$f"
  done
  rm -f "$dir/env"
}

# main: the caller defines install and up (which prints KEY=VALUE lines), maybe down.
main() {
  case "$verb" in
    install) install ;;
    start) [ -n "$dir" ] || die "start DIR"; mkdir -p "$dir"; dir=$(cd "$dir" && pwd)
      install; up >"$dir/env.new"; mv "$dir/env.new" "$dir/env"; cat "$dir/env" ;;
    stop) [ -d "$dir" ] || exit 0; dir=$(cd "$dir" && pwd); if declare -F down >/dev/null; then down; fi; stop_all ;;
    *) sed -n '2,/^$/s/^# \{0,1\}//p' "$0" >&2; exit 2 ;;
  esac
}
