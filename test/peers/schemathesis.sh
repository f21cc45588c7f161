#!/usr/bin/env bash
# schemathesis in a Python environment of its own: it tries every route of our OpenAPI document with what the document
# allows and with what it does not. Beside it mypy, which holds our Python client to its types.
# schemathesis.sh install | start DIR | stop DIR      prints SCHEMATHESIS, its program; nothing runs

. "$(dirname "$0")/lib.sh"
venv=$cache/schemathesis-4.32.5

install() {
  "$venv/bin/python" -c 'import schemathesis, mypy' 2>/dev/null && return
  need python3 python3-venv
  rm -rf "$venv"; python3 -m venv "$venv" || die "needs the Debian package python3-venv"
  "$venv/bin/pip" install -q schemathesis==4.32.5 mypy==2.4.1 >&2
}

up() { echo "SCHEMATHESIS=$venv/bin/schemathesis"; }
main
