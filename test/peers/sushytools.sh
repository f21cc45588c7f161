#!/usr/bin/env bash
# The Redfish emulator of OpenStack's sushy-tools in a Python environment of its own, twice: services that we did not write.
# sushytools.sh install | start DIR | stop DIR
#   SUSHY_TOOLS_URL, SUSHY_TOOLS_CA (a file), SUSHY_TOOLS_SYSTEM (a UUID): one machine, over TLS; user admin, password secret
#   SUSHY_LIBVIRT_URL: over libvirt's test driver, without a user. Its BIOS attributes are in force at once; an update raises the
#   second number of BiosVersion, whatever the image; managers cannot be reset.

. "$(dirname "$0")/lib.sh"
venv=$cache/sushy-tools-2.2.0

install() {
  need openssl openssl
  need python3 python3 python3-venv
  /usr/bin/python3 -c 'import libvirt' 2>/dev/null || need sushy-tools-needs-libvirt python3-libvirt python3-venv
  "$venv/bin/python" -c 'import sushy_tools, bcrypt, libvirt' 2>/dev/null && return
  rm -rf "$venv"; /usr/bin/python3 -m venv --system-site-packages "$venv" || die "needs the Debian package python3-venv"
  "$venv/bin/pip" install -q sushy-tools==2.2.0 bcrypt==5.0.0 >&2
}

# emulate NAME PORT SETTINGS: the emulator with settings beside where it listens.
emulate() {
  printf 'SUSHY_EMULATOR_LISTEN_IP = "127.0.0.1"\nSUSHY_EMULATOR_LISTEN_PORT = %s\n%s\n' "$2" "$3" >"$dir/$1.conf"
  spawn "$1" "$venv/bin/sushy-emulator" --config "$dir/$1.conf"
}

up() {
  local port other uuid=3f1c2a70-5a0e-4b7e-9d36-6d0a3a3f9b11; port=$(ports 2) other=$((port + 1))
  [ -f "$dir/cert.pem" ] || openssl req -x509 -newkey rsa:2048 -nodes -days 30 -subj /CN=sushy-tools -addext subjectAltName=IP:127.0.0.1 \
    -keyout "$dir/key.pem" -out "$dir/cert.pem" 2>"$dir/openssl.log" || die "$(cat "$dir/openssl.log")"
  [ -f "$dir/users" ] || "$venv/bin/python" -c 'import bcrypt; print("admin:" + bcrypt.hashpw(b"secret", bcrypt.gensalt(4)).decode())' >"$dir/users"
  mkdir -p "$dir/state"
  emulate machine "$port" "SUSHY_EMULATOR_FAKE_DRIVER = True
SUSHY_EMULATOR_SSL_CERT = '$dir/cert.pem'
SUSHY_EMULATOR_SSL_KEY = '$dir/key.pem'
SUSHY_EMULATOR_AUTH_FILE = '$dir/users'
SUSHY_EMULATOR_STATE_DIR = '$dir/state'
SUSHY_EMULATOR_FAKE_SYSTEMS = [{'uuid': '$uuid', 'name': 'emu-1', 'power_state': 'On', 'external_notifier': False,
  'nics': [{'mac': '52:54:00:00:00:01', 'ip': '192.0.2.1'}, {'mac': '52:54:00:00:00:02', 'ip': '192.0.2.2'}]}]"
  # The first connection holds the state of the test driver; it is gone with the last one.
  emulate libvirt "$other" "import libvirt
KEEP = libvirt.open('test:///default')
SUSHY_EMULATOR_LIBVIRT_URI = 'test:///default'
SUSHY_EMULATOR_FEATURE_SET = 'full'"
  wait_for 60 bound tcp "$port"
  wait_for 60 http_ok "http://127.0.0.1:$other/redfish/v1/Systems"
  echo "SUSHY_TOOLS_URL=https://127.0.0.1:$port"
  echo "SUSHY_TOOLS_CA=$dir/cert.pem"
  echo "SUSHY_TOOLS_SYSTEM=$uuid"
  echo "SUSHY_LIBVIRT_URL=http://127.0.0.1:$other"
}
main
