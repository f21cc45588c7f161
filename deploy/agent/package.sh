#!/usr/bin/env bash
# Makes a Debian package of the node agent: package.sh BINARY VERSION OUT
# The binary is the one of `make agent`; it needs the libc of the machine where it was built, or a newer one.
set -euo pipefail
binary=$1 version=$2 out=$3
here=$(cd "$(dirname "$0")" && pwd)
command -v dpkg-deb >/dev/null || { echo "dpkg-deb is missing: a Debian package is made on Debian or Ubuntu"; exit 1; }
root=$(mktemp -d)
trap 'rm -rf "$root"' EXIT

install -D -m 755 "$binary" "$root/usr/bin/auspex-agent"
install -D -m 644 "$here/auspex-agent.service" "$root/lib/systemd/system/auspex-agent.service"
install -D -m 644 "$here/control.conf" "$root/usr/share/auspex-agent/control.conf"
install -D -m 644 "$here/agent.yaml" "$root/etc/auspex-agent/agent.yaml"
install -D -m 644 "$here/../../docs/how-to/node-agent.md" "$root/usr/share/doc/auspex-agent/node-agent.md"
install -D -m 644 "$here/../../LICENSE" "$root/usr/share/doc/auspex-agent/copyright"

mkdir "$root/DEBIAN"
libc=$(readelf -W --dyn-syms "$binary" 2>/dev/null | grep -o 'GLIBC_[0-9.]*' | sort -Vu | tail -1 | cut -d_ -f2 || true)
cat >"$root/DEBIAN/control" <<EOF
Package: auspex-agent
Version: $version
Architecture: ${GOARCH:-$(dpkg --print-architecture)}
Maintainer: Auspex
Section: admin
Priority: optional
Depends: passwd${libc:+, libc6 (>= $libc)}
Suggests: lldpd
Description: node agent of Auspex
 Reads the GPUs (NVML), the kernel log and the health of a server and serves them over gNMI.
EOF
echo /etc/auspex-agent/agent.yaml >"$root/DEBIAN/conffiles"
cat >"$root/DEBIAN/postinst" <<'EOF'
#!/bin/sh
set -e
[ "$1" = configure ] || exit 0
if ! getent passwd auspex-agent >/dev/null; then
  useradd --system --user-group --home-dir /var/lib/auspex-agent --no-create-home --shell /usr/sbin/nologin auspex-agent
fi
chown root:auspex-agent /etc/auspex-agent # keys of certificates are read by it alone
chmod 750 /etc/auspex-agent
if [ -d /run/systemd/system ]; then
  systemctl daemon-reload
  if [ -n "$2" ]; then # over an older version: whoever has stopped it meant it
    systemctl try-restart auspex-agent.service || true
  else
    systemctl enable --now auspex-agent.service || true
  fi
fi
EOF
cat >"$root/DEBIAN/prerm" <<'EOF'
#!/bin/sh
set -e
if [ -d /run/systemd/system ] && [ "$1" = remove ]; then systemctl disable --now auspex-agent.service || true; fi
EOF
cat >"$root/DEBIAN/postrm" <<'EOF'
#!/bin/sh
set -e
if [ "$1" = purge ]; then rm -rf /var/lib/auspex-agent; fi
if [ -d /run/systemd/system ]; then systemctl daemon-reload; fi
EOF
chmod 755 "$root/DEBIAN/"{postinst,prerm,postrm}
mkdir -p "$out"
dpkg-deb --root-owner-group --build "$root" "$out/auspex-agent_${version}_${GOARCH:-$(dpkg --print-architecture)}.deb"
