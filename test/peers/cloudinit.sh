#!/usr/bin/env bash
# cloud-init of Debian, unpacked and not installed: its service would set this machine up at the next start.
# cloudinit.sh install | start DIR | stop DIR      prints CLOUDINIT_PYTHONPATH, for /usr/bin/python3; nothing runs

. "$(dirname "$0")/lib.sh"
tree=$cache/cloud-init
path=$tree/usr/lib/python3/dist-packages

install() {
  PYTHONPATH=$path /usr/bin/python3 -c 'import cloudinit.sources.DataSourceEc2, cloudinit.config.schema' 2>/dev/null && return
  need python3 python3
  need cloud-init-needs-python python3-configobj python3-jinja2 python3-jsonpatch python3-jsonschema python3-netifaces python3-oauthlib python3-requests python3-serial python3-yaml
  rm -rf "$tree" "$tree.deb"; mkdir -p "$tree.deb"
  (cd "$tree.deb" && apt-get download -qq cloud-init >&2 && dpkg -x ./*.deb "$tree") || die "apt-get download cloud-init"
  rm -rf "$tree.deb"
}

up() { echo "CLOUDINIT_PYTHONPATH=$path"; }
main
