package trust

import (
	"fmt"
	"strings"
)

// Peer is a kind of server that several parts of a process may reach, each by a
// configuration of its own.
type Peer string

// Kinds of peers: keys of the section [Peers].
const (
	BMC       Peer = "bmc"
	Switch    Peer = "switch"
	Exporter  Peer = "exporter"
	Scheduler Peer = "scheduler"
	Agent     Peer = "agent"
)

// Peers is what is trusted of each kind of peer, once for all who reach it.
type Peers struct {
	BMC       TLS `yaml:"bmc"`       // Redfish of board controllers, for the collector and for control
	Switch    TLS `yaml:"switch"`    // gNMI
	Exporter  TLS `yaml:"exporter"`  // dcgm-exporter
	Scheduler TLS `yaml:"scheduler"` // slurmrestd, for the collector and for control
	Agent     TLS `yaml:"agent"`     // node agents
}

func (p *Peers) of(peer Peer) *TLS {
	switch peer {
	case BMC:
		return &p.BMC
	case Switch:
		return &p.Switch
	case Exporter:
		return &p.Exporter
	case Scheduler:
		return &p.Scheduler
	case Agent:
		return &p.Agent
	}
	return &TLS{}
}

// Client is implemented by configurations that reach a kind of peer.
type Client interface {
	// Trusts returns the peer, the key of the settings below the configuration's own
	// ("" where they stand directly in it), and the settings.
	Trusts() (peer Peer, key string, settings *TLS)
}

// Use is a client by the dotted key of its configuration.
type Use struct {
	Key    string
	Client Client
}

// Share gives settings to all clients that have none of their own: those of the
// section, else those that the clients of the same peer agree upon. Only the
// section lets the others go unverified too.
func (p *Peers) Share(uses []Use) {
	for _, peer := range []Peer{BMC, Switch, Exporter, Scheduler, Agent} {
		shared := *p.of(peer)
		if shared == (TLS{}) {
			agreed := true
			for _, u := range uses {
				if of, _, t := u.Client.Trusts(); of == peer && *t != (TLS{}) {
					agreed = agreed && (shared == TLS{} || shared == *t)
					shared = *t
				}
			}
			if !agreed || shared.InsecureSkipVerify {
				continue
			}
		}
		for _, u := range uses {
			if of, _, t := u.Client.Trusts(); of == peer && *t == (TLS{}) {
				*t = shared
			}
		}
	}
}

// Differences says which clients of the same peer do not trust the same: what one
// of them reads another cannot reach.
func (p *Peers) Differences(uses []Use) (out []string) {
	for _, peer := range []Peer{BMC, Switch, Exporter, Scheduler, Agent} {
		first, settings := "", TLS{}
		if *p.of(peer) != (TLS{}) {
			first, settings = "trust."+string(peer), *p.of(peer)
		}
		for _, u := range uses {
			of, key, t := u.Client.Trusts()
			if of != peer {
				continue
			}
			name := strings.TrimSuffix(u.Key+"."+key, ".")
			switch {
			case first == "":
				first, settings = name, *t
			case *t != settings:
				out = append(out, fmt.Sprintf(
					"%s and %s differ (%s): one may reach what the other cannot; set trust.%s alone", first, name, difference(settings, *t), peer,
				))
			}
		}
	}
	return out
}

// difference names the keys in which settings differ.
func difference(a, b TLS) string {
	var keys []string
	note := func(key string, same bool) {
		if !same {
			keys = append(keys, key)
		}
	}
	note("ca_file", a.CAFile == b.CAFile)
	note("cert_file", a.CertFile == b.CertFile)
	note("key_file", a.KeyFile == b.KeyFile)
	note("server_name", a.ServerName == b.ServerName)
	note("insecure_skip_verify", a.InsecureSkipVerify == b.InsecureSkipVerify)
	return strings.Join(keys, ", ")
}
