#!/usr/bin/env bash
# DMTF's redfish-utilities in a Python environment of their own: a client that we did not write, for our simulated BMCs.
# redfishutilities.sh install | start DIR | stop DIR      prints REDFISH_UTILITIES_PYTHON, an interpreter that has the package; nothing runs

. "$(dirname "$0")/lib.sh"
venv=$cache/redfish-utilities-3.5.2

install() {
  "$venv/bin/python" -c 'import redfish_utilities' 2>/dev/null && return
  need python3 python3-venv
  rm -rf "$venv"; python3 -m venv "$venv" || die "needs the Debian package python3-venv"
  "$venv/bin/pip" install -q redfish-utilities==3.5.2 >&2
}

up() { echo "REDFISH_UTILITIES_PYTHON=$venv/bin/python"; }
main
