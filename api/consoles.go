package api

import (
	"cmp"
	"context"
	"fmt"
	"net"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"time"

	"auspex/api/access"
	"auspex/api/apigen"
	"auspex/schemas"
)

// consoles are those that the controller of a server offers, as it was read last, for who may operate it. A tenant who has it for a
// while sees none.
func (s *Server) consoles(ctx context.Context, server *schemas.Resource) (out []apigen.Console) {
	if s.deps.Querier == nil || !seen(ctx).runsOn(server.ID) || s.mayOn(ctx, access.Operate, server.ID) != nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, queryTimeout)
	defer cancel()
	found, err := s.deps.Querier.Instant(ctx, fmt.Sprintf(`max by (console, protocol, port) (%s{server=%q})`, schemas.MetricConsoles, server.ID), time.Now())
	if err != nil {
		s.log.Warn("cannot read which consoles there are", "server", server.ID, "error", err)
		return nil
	}
	type key struct{ kind, protocol string }
	sessions, ports := map[key]float64{}, map[key]string{}
	for _, f := range found { // Redfish and IPMI may both tell of one
		if len(f.Points) == 1 {
			k := key{f.Labels["console"], f.Labels["protocol"]}
			sessions[k], ports[k] = max(sessions[k], f.Points[0].V), max(ports[k], f.Labels["port"])
		}
	}
	for k, n := range sessions {
		c := apigen.Console{Kind: k.kind, Protocol: k.protocol, Sessions: int(n), Enabled: n > 0}
		if c.Enabled {
			c.URL, c.Command = wayTo(c.Protocol, ports[k], server.Attrs)
		}
		out = append(out, c)
	}
	slices.SortFunc(out, func(a, b apigen.Console) int {
		return cmp.Or(strings.Compare(a.Kind, b.Kind), strings.Compare(a.Protocol, b.Protocol))
	})
	return out
}

// plainHost is a name or an address that can stand in a command line as it is.
var plainHost = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9.:-]*$`)

// wayTo is how a person gets to a console: by an address, or by a command that asks for the password. A user or a password that an
// address of the inventory has is in none.
func wayTo(protocol, port string, attrs schemas.Attrs) (link, command string) {
	page, err := url.Parse(attrs.Get(schemas.AttrRedfishURL))
	web := err == nil && (page.Scheme == "https" || page.Scheme == "http") && plainHost.MatchString(page.Hostname())
	switch protocol {
	case "KVMIP":
		if web { // where its console is among its pages no standard says
			link = (&url.URL{Scheme: page.Scheme, Host: page.Host, Path: "/"}).String()
		}
	case "SSH", "Telnet":
		if web {
			host := page.Hostname()
			if strings.Contains(host, ":") {
				host = "[" + host + "]"
			}
			if port != "" {
				host += ":" + port
			}
			link = (&url.URL{Scheme: strings.ToLower(protocol), Host: host}).String()
		}
	case "IPMI":
		host := attrs.Get(schemas.AttrIPMIIP)
		if h, p, err := net.SplitHostPort(host); err == nil {
			host, port = h, cmp.Or(p, port)
		}
		if host == "" && web {
			host = page.Hostname()
		}
		if plainHost.MatchString(host) && (port == "" || plainHost.MatchString(port)) {
			command = "ipmitool -I lanplus -H " + host
			if port != "" {
				command += " -p " + port
			}
			command += " -U USER -a sol activate"
		}
	}
	return link, command
}
