package tunnel

import "github.com/prometheus/client_golang/prometheus"

// How connections end or begin.
const (
	resultAdmitted   = "admitted"
	resultReplaced   = "replaced"   // by a newer one of the same machine
	resultHandshake  = "handshake"  // TLS came to nothing
	resultMute       = "mute"       // it did not say who it is, or did not answer
	resultFlood      = "flood"      // more tries than are taken at a time, or messages that nobody asked for
	resultFull       = "full"       // as many machines are connected as may be
	resultRefused    = "refused"    // the store does not want it, or it is no token of a join
	resultStore      = "store_away" // nobody could say
	resultTwin       = "twin"       // another machine is that server, or has that key
	resultCut        = "cut"        // it may no longer be connected
	resultOpened     = "opened"
	resultAway       = "away"
	resultUnanswered = "unanswered"
	resultDeclined   = "declined" // by the machine
)

type metrics struct {
	machines, unplaced, sessions, pending prometheus.GaugeFunc
	connections, dials                    *prometheus.CounterVec
	unasked, unread                       prometheus.Counter
}

func (s *Server) register(reg prometheus.Registerer) {
	gauge := func(name, help string, f func() float64) prometheus.GaugeFunc {
		return prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: "auspex_tunnel_" + name, Help: help}, f)
	}
	vec := func(name, help string, results ...string) *prometheus.CounterVec {
		v := prometheus.NewCounterVec(prometheus.CounterOpts{Name: "auspex_tunnel_" + name, Help: help}, []string{"result"})
		for _, r := range results {
			v.WithLabelValues(r)
		}
		return v
	}
	counter := func(name, help string) prometheus.Counter {
		return prometheus.NewCounter(prometheus.CounterOpts{Name: "auspex_tunnel_" + name, Help: help})
	}
	s.metrics = metrics{
		machines: gauge("machines", "Machines that are dialled in.", func() float64 { return float64(s.count(false)) }),
		unplaced: gauge("machines_unplaced", "Machines that are dialled in and are no server of the inventory yet.", func() float64 { return float64(s.count(true)) }),
		sessions: gauge("sessions", "Connections that are open through tunnels.", func() float64 { return float64(s.open.Load()) }),
		pending:  gauge("connections_pending", "Connections that have not shown who they are.", func() float64 { return float64(s.gate.pending()) }),
		connections: vec("connections_total", "Connections of machines, by how they began or ended.", resultAdmitted, resultReplaced, resultHandshake,
			resultMute, resultFlood, resultFull, resultRefused, resultStore, resultTwin, resultCut),
		dials:   vec("dials_total", "Connections that were wanted through tunnels.", resultOpened, resultAway, resultUnanswered, resultDeclined),
		unasked: counter("unasked_total", "Messages of machines that nobody had asked for."),
		unread:  counter("admissions_unread_total", "How often it could not be read who may be connected; those who are stay."),
	}
	if reg != nil {
		m := s.metrics
		reg.MustRegister(m.machines, m.unplaced, m.sessions, m.pending, m.connections, m.dials, m.unasked, m.unread)
	}
}

func (s *Server) counted(result string) { s.metrics.connections.WithLabelValues(result).Inc() }

// count returns how many machines are dialled in, or how many of them are not placed.
func (s *Server) count(unplaced bool) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	if unplaced {
		return len(s.links) - len(s.servers)
	}
	return len(s.links)
}
