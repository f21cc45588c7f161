#!/usr/bin/env bash
# Debian's rsyslogd, which forwards what it is given on loopback, as a server's does with its kernel's lines.
# rsyslog.sh install | start DIR | stop DIR
#   RSYSLOG_INPUTS: host:port of three inputs, whose lines go out over UDP (RFC 3164), TCP (RFC 5424, counted) and TLS (RFC 5424)
#   RSYSLOG_OUTPUTS: host:port where each is sent to, for the test to listen on
#   RSYSLOG_CERTS: a folder with ca.pem, and server.pem and server.key for the receiver; rsyslogd shows a certificate of gpu-1.example

. "$(dirname "$0")/lib.sh"

install() {
  need openssl openssl
  need rsyslogd rsyslog
  [ -f "$(dpkg-query -L rsyslog-gnutls 2>/dev/null | grep lmnsd_gtls)" ] || need rsyslog-needs-gnutls rsyslog-gnutls
}

# issue NAME SUBJECTALTNAME: a certificate of the authority in DIR/certs.
issue() {
  openssl req -newkey rsa:2048 -nodes -subj "/CN=$1" -keyout "$1.key" -out "$1.csr" -addext "subjectAltName=$2"
  openssl x509 -req -in "$1.csr" -CA ca.pem -CAkey ca.key -CAcreateserial -days 30 -copy_extensions copyall -out "$1.pem"
}

up() {
  local port certs=$dir/certs; port=$(ports 6)
  mkdir -p "$certs" "$dir/work"
  [ -f "$certs/gpu-1.example.pem" ] || (cd "$certs"
    openssl req -x509 -newkey rsa:2048 -nodes -days 30 -subj "/CN=peers" -keyout ca.key -out ca.pem
    issue server IP:127.0.0.1,DNS:auspex.example
    issue gpu-1.example DNS:gpu-1.example) 2>"$dir/openssl.log" || die "$(cat "$dir/openssl.log")"
  local again='action.resumeRetryCount="-1" action.resumeInterval="1" action.resumeIntervalMax="1"'
  cat >"$dir/rsyslog.conf" <<CONF
global(workDirectory="$dir/work" defaultNetstreamDriverCAFile="$certs/ca.pem"
  defaultNetstreamDriverCertFile="$certs/gpu-1.example.pem" defaultNetstreamDriverKeyFile="$certs/gpu-1.example.key")
module(load="imtcp")
ruleset(name="udp") { action(type="omfwd" target="127.0.0.1" port="$((port + 3))" protocol="udp" template="RSYSLOG_TraditionalForwardFormat") }
ruleset(name="tcp") { action(type="omfwd" target="127.0.0.1" port="$((port + 4))" protocol="tcp" tcp_framing="octet-counted"
  template="RSYSLOG_SyslogProtocol23Format" $again) }
ruleset(name="tls") { action(type="omfwd" target="127.0.0.1" port="$((port + 5))" protocol="tcp" tcp_framing="octet-counted"
  template="RSYSLOG_SyslogProtocol23Format" streamDriver="gtls" streamDriverMode="1" streamDriverAuthMode="x509/name"
  streamDriverPermittedPeers="auspex.example" $again) }
input(type="imtcp" address="127.0.0.1" port="$port" ruleset="udp")
input(type="imtcp" address="127.0.0.1" port="$((port + 1))" ruleset="tcp")
input(type="imtcp" address="127.0.0.1" port="$((port + 2))" ruleset="tls")
CONF
  spawn rsyslogd "$(PATH=$PATH:/usr/sbin command -v rsyslogd)" -n -f "$dir/rsyslog.conf" -i "$dir/rsyslogd.own"
  wait_for 30 bound tcp "$((port + 2))"
  echo "RSYSLOG_INPUTS=127.0.0.1:$port,127.0.0.1:$((port + 1)),127.0.0.1:$((port + 2))"
  echo "RSYSLOG_OUTPUTS=127.0.0.1:$((port + 3)),127.0.0.1:$((port + 4)),127.0.0.1:$((port + 5))"
  echo "RSYSLOG_CERTS=$certs"
}
main
