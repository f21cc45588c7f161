#!/usr/bin/env bash
# The Redfish emulator of OpenStack's sushy-tools in a Python environment of its own, with one machine: a service that we did not write.
# sushytools.sh install | start DIR | stop DIR      prints SUSHY_TOOLS_URL, SUSHY_TOOLS_CA (a file), SUSHY_TOOLS_SYSTEM (a UUID)
# User admin, password secret.

. "$(dirname "$0")/lib.sh"
venv=$cache/sushy-tools-2.2.0

install() {
  need openssl openssl
  "$venv/bin/python" -c 'import sushy_tools, bcrypt' 2>/dev/null && return
  need python3 python3-venv
  rm -rf "$venv"; python3 -m venv "$venv" || die "needs the Debian package python3-venv"
  "$venv/bin/pip" install -q sushy-tools==2.2.0 bcrypt==5.0.0 >&2
}

up() {
  local port uuid=3f1c2a70-5a0e-4b7e-9d36-6d0a3a3f9b11; port=$(ports 1)
  [ -f "$dir/cert.pem" ] || openssl req -x509 -newkey rsa:2048 -nodes -days 30 -subj /CN=sushy-tools -addext subjectAltName=IP:127.0.0.1 \
    -keyout "$dir/key.pem" -out "$dir/cert.pem" 2>"$dir/openssl.log" || die "$(cat "$dir/openssl.log")"
  [ -f "$dir/users" ] || "$venv/bin/python" -c 'import bcrypt; print("admin:" + bcrypt.hashpw(b"secret", bcrypt.gensalt(4)).decode())' >"$dir/users"
  mkdir -p "$dir/state"
  cat >"$dir/emulator.conf" <<END
SUSHY_EMULATOR_FAKE_DRIVER = True
SUSHY_EMULATOR_LISTEN_IP = "127.0.0.1"
SUSHY_EMULATOR_LISTEN_PORT = $port
SUSHY_EMULATOR_SSL_CERT = "$dir/cert.pem"
SUSHY_EMULATOR_SSL_KEY = "$dir/key.pem"
SUSHY_EMULATOR_AUTH_FILE = "$dir/users"
SUSHY_EMULATOR_STATE_DIR = "$dir/state"
SUSHY_EMULATOR_FAKE_SYSTEMS = [{"uuid": "$uuid", "name": "emu-1", "power_state": "On", "external_notifier": False,
  "nics": [{"mac": "52:54:00:00:00:01", "ip": "192.0.2.1"}, {"mac": "52:54:00:00:00:02", "ip": "192.0.2.2"}]}]
END
  spawn emulator "$venv/bin/sushy-emulator" --config "$dir/emulator.conf"
  wait_for 60 bound tcp "$port"
  echo "SUSHY_TOOLS_URL=https://127.0.0.1:$port"
  echo "SUSHY_TOOLS_CA=$dir/cert.pem"
  echo "SUSHY_TOOLS_SYSTEM=$uuid"
}
main
