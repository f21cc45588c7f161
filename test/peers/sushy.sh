#!/usr/bin/env bash
# OpenStack's Redfish client sushy in a Python environment of its own: a client that we did not write, for our simulated BMCs.
# sushy.sh install | start DIR | stop DIR      prints SUSHY_PYTHON, an interpreter that has the package; nothing runs

. "$(dirname "$0")/lib.sh"
venv=$cache/sushy-5.14.0

install() {
  "$venv/bin/python" -c 'import sushy' 2>/dev/null && return
  need python3 python3-venv
  rm -rf "$venv"; python3 -m venv "$venv" || die "needs the Debian package python3-venv"
  "$venv/bin/pip" install -q sushy==5.14.0 >&2
}

up() { echo "SUSHY_PYTHON=$venv/bin/python"; }
main
