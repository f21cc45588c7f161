#!/usr/bin/env bash
# N BMCs: ipmi_sim of OpenIPMI (Debian package openipmi), one process each (3.6 MB), with SDR, sensors, SEL and FRU.
# ipmi.sh install | start DIR [N=1] | stop DIR      prints IPMI_BMCS="host:port ..." and IPMI_CONSOLES (same order)
# User admin, password secret, cipher suite 3 only: ipmitool -I lanplus -C 3 -H 127.0.0.1 -p PORT -U admin -P secret ...
# The power state survives stop and start, the SEL does not. Inject: ipmi/con.py CONSOLE_PORT "sensor_set_value 0x20 0 1 0x5b 1"

. "$(dirname "$0")/lib.sh"
n=${3:-1}

install() { need ipmi_sim openipmi; need ipmitool ipmitool; need python3 python3; }

up() {
  local port i bmcs= consoles= sim=$here/ipmi; port=$(ports $((2 * n)))
  cp "$sim/chassisctl.sh" "$dir/chassisctl.sh"; chmod +x "$dir/chassisctl.sh" # the path must be absolute and hold no space
  for ((i = 0; i < n; i++)); do
    local b=$dir/bmc$i lan=$((port + 2 * i))
    [ -f "$b/sim.emu" ] || python3 "$sim/gen.py" "$b" "$lan" "$dir/chassisctl.sh" "${SENSORS:-24}" $((lan + 1))
    spawn "bmc$i" ipmi_sim -c "$b/lan.conf" -f "$b/sim.emu" -s "$b/state" -n -p
    bmcs+=" 127.0.0.1:$lan" consoles+=" 127.0.0.1:$((lan + 1))"
  done
  for ((i = 0; i < n; i++)); do wait_for 20 bound udp $((port + 2 * i)); done
  echo "IPMI_BMCS='${bmcs# }'"
  echo "IPMI_CONSOLES='${consoles# }'"
}
main
