#!/usr/bin/env bash
# OpenStack's Redfish emulator sushy-tools over libvirt's test driver: a BMC that we did not write, with BIOS settings and SimpleUpdate.
# sushy-tools.sh install | start DIR | stop DIR      prints SUSHY_TOOLS_URL; no user
# Its BIOS attributes are in force at once; an update raises the second number of BiosVersion, whatever the image; managers cannot be reset.

. "$(dirname "$0")/lib.sh"
venv=$cache/sushy-tools-2.2.0

install() {
  need python3 python3 python3-venv
  /usr/bin/python3 -c 'import libvirt' 2>/dev/null || need sushy-tools-needs-libvirt python3-libvirt python3-venv
  "$venv/bin/python" -c 'import sushy_tools, libvirt' 2>/dev/null && return
  rm -rf "$venv"; /usr/bin/python3 -m venv --system-site-packages "$venv" || die "needs the Debian package python3-venv"
  "$venv/bin/pip" install -q sushy-tools==2.2.0 >&2
}

up() {
  local port; port=$(ports 1)
  # The first connection holds the state of the test driver; it is gone with the last one.
  cat >"$dir/emulator.conf" <<EOF
import libvirt
KEEP = libvirt.open('test:///default')
SUSHY_EMULATOR_LIBVIRT_URI = 'test:///default'
SUSHY_EMULATOR_FEATURE_SET = 'full'
SUSHY_EMULATOR_LISTEN_IP = '127.0.0.1'
SUSHY_EMULATOR_LISTEN_PORT = $port
EOF
  spawn emulator "$venv/bin/sushy-emulator" --config "$dir/emulator.conf"
  wait_for 20 http_ok "http://127.0.0.1:$port/redfish/v1/Systems"
  echo "SUSHY_TOOLS_URL=http://127.0.0.1:$port"
}
main
