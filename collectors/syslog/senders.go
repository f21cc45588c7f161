package syslog

import (
	"net"
	"net/netip"
	"net/url"
	"slices"
	"strings"

	"auspex/schemas"
)

// senders says whose a line is, by what the inventory has of addresses and names. A sender is
// believed as far as it can be held to something: a certificate or an address of the inventory says
// which server it is, whatever the line says; a line that names another server is forged. A name
// alone is believed of relays, and of servers that have no address.
type senders struct {
	addrs   map[netip.Addr]place
	names   map[string]string // lower case; "" of names that several servers have
	located map[string]bool   // servers that have an address
	hosts   map[string]*host  // those that are read
}

// place is what has an address.
type place struct {
	server string // "" where several servers claim it
	bmc    bool   // a board controller's, which has a kernel of its own
}

// newSenders keeps the hosts that were there before.
func newSenders(resources []schemas.Resource, before map[string]*host) *senders {
	s := &senders{addrs: map[netip.Addr]place{}, names: map[string]string{}, located: map[string]bool{}, hosts: map[string]*host{}}
	byID := make(map[string]schemas.Resource, len(resources))
	for _, r := range resources {
		byID[r.ID] = r
	}
	for _, r := range resources {
		server := r
		for range 8 { // parents deeper than that are no parts of a server
			if server.Kind == schemas.KindServer || server.Parent == "" {
				break
			}
			server = byID[server.Parent]
		}
		if server.Kind != schemas.KindServer {
			continue
		}
		if r.Kind == schemas.KindServer {
			s.name(r.ID, r.ID)
			if r.Attrs.Get(schemas.AttrSyslogFrom) != "" {
				if s.hosts[r.ID] = before[r.ID]; s.hosts[r.ID] == nil {
					s.hosts[r.ID] = newHost(r.ID)
				}
			}
			for word := range strings.SplitSeq(r.Attrs.Get(schemas.AttrSyslogFrom), ",") {
				if word = strings.TrimSpace(word); !s.addr(word, server.ID, false) {
					s.name(word, server.ID)
				}
			}
		}
		for word := range strings.SplitSeq(r.Attrs.Get(schemas.AttrIP), ",") {
			s.addr(strings.TrimSpace(word), server.ID, false)
		}
		for _, key := range []string{schemas.AttrExporterURL, schemas.AttrAgentAddress} {
			s.addr(hostOf(r.Attrs.Get(key)), server.ID, false)
		}
		for _, key := range []string{schemas.AttrRedfishURL, schemas.AttrIPMIIP, schemas.AttrManagementIP} {
			s.addr(hostOf(r.Attrs.Get(key)), server.ID, true)
		}
	}
	return s
}

// hostOf returns the host of a URL, of host:port, or what is neither.
func hostOf(s string) string {
	if u, err := url.Parse(s); err == nil && u.Host != "" {
		s = u.Host
	}
	if host, _, err := net.SplitHostPort(s); err == nil {
		return host
	}
	return s
}

// addr notes an address, and reports whether the text is one. This machine's own says nothing of
// a server.
func (s *senders) addr(text, server string, bmc bool) bool {
	ip, err := netip.ParseAddr(text)
	if err != nil {
		return false
	}
	ip = ip.Unmap().WithZone("")
	if ip.IsLoopback() || ip.IsUnspecified() {
		return true
	}
	s.located[server] = s.located[server] || !bmc
	if old, ok := s.addrs[ip]; ok && old != (place{server, bmc}) {
		if old.server == server { // of the host and of its controller: what comes from there may be either's
			s.addrs[ip] = place{server, true}
			return true
		}
		server = ""
	}
	s.addrs[ip] = place{server, bmc}
	return true
}

// name notes a name, and its first label beside it.
func (s *senders) name(text, server string) {
	for _, n := range slices.Compact([]string{strings.ToLower(text), short(strings.ToLower(text))}) {
		if old, ok := s.names[n]; ok && old != server {
			server = ""
		}
		if n != "" {
			s.names[n] = server
		}
	}
}

func short(name string) string {
	first, _, _ := strings.Cut(name, ".")
	return first
}

// named returns the server that a host name is, "" for none or several.
func (s *senders) named(host string) string {
	if host == "" {
		return ""
	}
	if ip, err := netip.ParseAddr(host); err == nil {
		if p := s.addrs[ip.Unmap()]; !p.bmc {
			return p.server
		}
		return ""
	}
	host = strings.ToLower(strings.TrimSuffix(host, "."))
	if id, ok := s.names[host]; ok {
		return id
	}
	return s.names[short(host)]
}

// origin is where lines come from: an address, or a connection.
type origin struct {
	addr  netip.Addr
	names []string // of its certificate, which was verified
	relay bool
	limit *shared // nil of a relay, whose servers have theirs

	in     *senders // what follows was found in
	server string
	bmc    bool
	// The line before, whose sender that of the next mostly is.
	claimed string
	host    *host
	why     reason
}

// reason says why a line is left out.
type reason int

const (
	kept       reason = iota
	stranger          // no server of the inventory
	forged            // it names a server that its sender is not
	notRead           // a server without the attribute
	controller        // a board controller, whose kernel is not the server's
	tooMany           // more than the rate
	overflow          // faster than it can be passed on
	tooOld            // of a journal
	known             // of a journal, and read before
	malformed
)

// reasons are the label values of the metric.
var reasons = []string{"", "stranger", "forged", "not_collected", "bmc", "rate", "overflow", "old", "known", "malformed"}

// whose returns the server that a line is booked on, or why on none.
func (r *receiver) whose(o *origin, claimed string) (*host, reason) {
	in := r.senders.Load()
	if o.in == in && claimed == o.claimed {
		return o.host, o.why
	}
	if o.in != in {
		o.in, o.server, o.bmc = in, "", false
		if len(o.names) > 0 {
			for _, n := range o.names {
				if o.server = in.named(n); o.server != "" {
					break
				}
			}
		} else if p, ok := in.addrs[o.addr]; ok {
			o.server, o.bmc = p.server, p.bmc
		}
	}
	o.claimed = strings.Clone(claimed)
	id, why := r.judge(o, in, claimed)
	o.host, o.why = nil, why
	if why == kept {
		if o.host = in.hosts[id]; o.host == nil {
			o.why = notRead
		}
	}
	switch o.why {
	case forged:
		r.tell("forged "+o.String()+claimed, "lines name a server that their sender is not; they are left out", "sender", o.String(), "name", claimed, "server", id)
	case stranger:
		r.tell("stranger "+o.String()+claimed, "lines are of no server of the inventory; they are left out", "sender", o.String(), "name", claimed)
	case notRead:
		r.tell("unread "+id, "a server sends its log and has no attribute "+schemas.AttrSyslogFrom+"; its lines are left out", "sender", o.String(), "server", id)
	}
	return o.host, o.why
}

func (r *receiver) judge(o *origin, in *senders, claimed string) (string, reason) {
	named := in.named(claimed)
	switch {
	case o.relay && named == "":
		return "", stranger
	case o.relay:
		return named, kept
	case o.bmc:
		return o.server, controller
	case o.server != "" && named != "" && named != o.server:
		return named, forged
	case o.server != "":
		return o.server, kept
	case len(o.names) > 0, named == "":
		return "", stranger
	case in.located[named]:
		return named, forged
	}
	return named, kept
}

// String is the sender as people are told of it.
func (o *origin) String() string {
	if len(o.names) > 0 {
		return o.names[0] + " (" + o.addr.String() + ")"
	}
	return o.addr.String()
}
