#!/usr/bin/env bash
# Slurm: controller, REST daemon and 4 nodes gpu1..gpu4 with 8 GPUs each, on one host; needs root.
# slurm.sh install | start DIR | stop DIR      prints SLURM_CONF, SLURM_REST, SLURM_TOKEN (user root), SLURM_RUN
# Default: the host's own packages (Debian 12: 22.05, whose REST cannot drain: use `$SLURM_RUN scontrol`).
# SUITE=trixie: packages of that release (24.11, drains over REST v0.0.42) in a chroot in the cache, made with
# debootstrap from the mirror of this machine's apt configuration; run client tools with $SLURM_RUN too.
# ACCOUNTING=1: with slurmdbd on a MariaDB of this host, which slurmrestd reads (/slurmdb).

. "$(dirname "$0")/lib.sh"
suite=${SUITE:-$(cat "$dir/suite" 2>/dev/null || echo host)} root=$cache/slurm-${SUITE:-trixie}
accounting=${ACCOUNTING:-$(cat "$dir/accounting" 2>/dev/null || true)}
packages=(munge slurm-wlm slurmrestd slurm-client slurm-wlm-jwt-plugin)
in_root() { if [ "$suite" = host ]; then "$@"; else chroot "$root" "$@"; fi; }
enter=$([ "$suite" = host ] || echo "chroot $root")
[ "$(id -u)" = 0 ] || [ "$verb" = "" ] || die "needs root"

install() {
  [ -z "$accounting" ] || need mariadbd mariadb-server
  if [ "$suite" = host ]; then
    need munged munge; need slurmctld slurm-wlm; need slurmrestd slurmrestd slurm-wlm-jwt-plugin
    [ -z "$accounting" ] || need slurmdbd slurmdbd
    return
  fi
  if [ -x "$root/usr/sbin/slurmrestd" ]; then
    [ -z "$accounting" ] || [ -x "$root/usr/sbin/slurmdbd" ] ||
      chroot "$root" env DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends slurmdbd slurm-wlm-mysql-plugin >"$cache/slurmdbd-$suite.log" 2>&1 ||
      die "see $cache/slurmdbd-$suite.log"
    return
  fi
  need debootstrap debootstrap
  local mirror; mirror=$(apt-get indextargets --format '$(LABEL) $(REPO_URI)' 'Identifier: Packages' | sed -n 's/^Debian //p' | head -1)
  [ -x "$root/usr/bin/apt-get" ] || debootstrap --variant=minbase "$suite" "$root" "$mirror" >"$cache/debootstrap.log" 2>&1 ||
    { rm -rf --one-file-system "$root"; die "see $cache/debootstrap.log"; }
  for f in /etc/resolv.conf /etc/hosts /etc/apt/apt.conf.d/*prox*; do [ ! -f "$f" ] || cp -L "$f" "$root$f"; done
  chroot "$root" sh -c "printf '#!/bin/sh\nexit 101\n' >/usr/sbin/policy-rc.d; chmod +x /usr/sbin/policy-rc.d; apt-get update -qq &&
    DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends ${packages[*]} ${accounting:+slurmdbd slurm-wlm-mysql-plugin}" >"$cache/slurm-$suite.log" 2>&1 ||
    die "see $cache/slurm-$suite.log"
}

# account PORT: slurmdbd on the port after those of the cluster, and MariaDB on the next.
account() {
  local sql=(mariadb --no-defaults --user=root --socket="$dir/db/sock")
  if [ ! -d "$dir/db/data" ]; then
    mkdir -p "$dir/db"; chown mysql: "$dir/db"
    mariadb-install-db --no-defaults --user=mysql --datadir="$dir/db/data" --auth-root-authentication-method=normal --skip-test-db >"$dir/db.log" 2>&1
  fi
  spawn mariadbd mariadbd --no-defaults --user=mysql --datadir="$dir/db/data" --socket="$dir/db/sock" --pid-file="$dir/db/pid" \
    --bind-address=127.0.0.1 --port=$(($1 + 7)) --innodb-lock-wait-timeout=900 --skip-name-resolve
  wait_for 60 "${sql[@]}" -e 'SELECT 1'
  "${sql[@]}" -e "CREATE USER IF NOT EXISTS slurm@127.0.0.1; GRANT ALL ON slurm_acct.* TO slurm@127.0.0.1"
  spawn slurmdbd $enter slurmdbd -D
  wait_for 60 bound tcp $(($1 + 6))
  wait_for 30 in_root sacctmgr -i list cluster
  in_root sacctmgr -i add cluster prototype >/dev/null || true # it is there already
}

up() {
  local port n f plugin; port=$(ports 8); echo "$suite" >"$dir/suite"; echo "$accounting" >"$dir/accounting"
  [ -z "$enter" ] || { mkdir -p "$root$dir"; for f in /proc /dev "$dir"; do mountpoint -q "$root$f" || mount --bind "$f" "$root$f"; done; }
  mkdir -p "$dir"/{munge,state,run,spool,dev}; touch "$dir"/dev/nvidia{0..7}
  for f in slurm gres slurmdbd; do
    sed "s|@DIR@|$dir|; s|@PORT@|$port|; s|@FIRST@|$((port + 2))|; s|@LAST@|$((port + 5))|; s|@DBD@|$((port + 6))|; s|@STORAGE@|$((port + 7))|" \
      "$here/slurm/$f.conf.in" >"$dir/$f.conf"
  done
  chmod 600 "$dir/slurmdbd.conf"; in_root chown slurm: "$dir/slurmdbd.conf"
  [ -z "$accounting" ] || printf 'AccountingStorageType=accounting_storage/slurmdbd\nAccountingStorageHost=localhost\nAccountingStoragePort=%s\nAccountingStoragePass=%s\nMinJobAge=2\n' $((port + 6)) "$dir/munge/munge.sock" >>"$dir/slurm.conf"
  if [ "$suite" = host ]; then echo CgroupAutomount=no; else echo CgroupPlugin=disabled; fi >"$dir/cgroup.conf"
  printf '#!/bin/sh\necho "$SLURM_NODE_NAME $*" >>%s/reboots\n' "$dir" >"$dir/reboot.sh"; chmod 755 "$dir" "$dir/reboot.sh"
  [ -f "$dir/munge/key" ] || { head -c 128 /dev/urandom >"$dir/munge/key"; head -c 32 /dev/urandom >"$dir/jwt.key"; chmod 600 "$dir/munge/key" "$dir/jwt.key"; }
  in_root chown -R munge: "$dir/munge"; in_root chown slurm: "$dir/jwt.key" "$dir/state" "$dir/run"; chmod 711 "$dir/munge"
  spawn munged $enter setpriv --reuid=munge --regid=munge --clear-groups munged -F --force -S "$dir/munge/munge.sock" \
    --key-file="$dir/munge/key" --seed-file="$dir/munge/seed" --log-file="$dir/munge/log" --pid-file="$dir/munge/pid"
  wait_for 10 test -S "$dir/munge/munge.sock"
  export SLURM_CONF=$dir/slurm.conf
  [ -z "$accounting" ] || account "$port"
  spawn slurmctld $enter slurmctld -D -f "$SLURM_CONF"
  wait_for 20 in_root scontrol ping
  for n in 1 2 3 4; do spawn "gpu$n" $enter slurmd -D -N "gpu$n" -f "$SLURM_CONF"; done
  if [ "$suite" = host ]; then plugin=openapi/v0.0.38${accounting:+,openapi/dbv0.0.38}; else plugin=openapi/slurmctld${accounting:+,openapi/slurmdbd}; fi # all plugins at once do not load
  SLURM_JWT=daemon spawn slurmrestd $enter setpriv --reuid=65534 --regid=65534 --clear-groups slurmrestd -a rest_auth/jwt -s $plugin "127.0.0.1:$((port + 1))"
  wait_for 20 bound tcp $((port + 1))
  wait_for 30 sh -c "$enter scontrol -o show node | grep -c 'State=[A-Z]*IDLE\|State=MIXED\|State=ALLOC\|DRAIN' | grep -qx 4"
  echo "SLURM_CONF=$SLURM_CONF"
  echo "SLURM_REST=http://127.0.0.1:$((port + 1))"
  echo "SLURM_$(in_root scontrol token username=root lifespan=86400 | sed 's/^SLURM_JWT/TOKEN/')"
  echo "SLURM_RUN='$enter'"
}

down() { stop_all; [ "$suite" = host ] || umount "$root$dir" "$root/proc" "$root/dev" 2>/dev/null || true; } # busy: another cluster runs
main
