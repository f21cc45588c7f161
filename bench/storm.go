package bench

import (
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"
	"time"

	"auspex/schemas"
)

// PeerStorm tells a [Storm].
const PeerStorm = "storm"

// StormOptions says how large a storm is.
type StormOptions struct {
	Servers int    `json:"servers"`
	Events  int    `json:"events"` // at least
	Seed    uint64 `json:"seed"`
}

// Storm is a stream of events with what caused them.
type Storm struct {
	Topology schemas.Topology `json:"topology"`
	Events   []schemas.Event  `json:"events"`
	Faults   []StormFault     `json:"faults"`
}

// StormFault is a fault with the ids of its events.
type StormFault struct {
	Fault    string   `json:"fault"`
	Resource string   `json:"resource"`
	Events   []string `json:"events"`
}

func storm(_ context.Context, options []byte, _ *json.Decoder, out *sender) error {
	var o StormOptions
	if err := json.Unmarshal(options, &o); err != nil {
		return err
	}
	if o.Servers < 1 {
		return fmt.Errorf("%d servers are too few", o.Servers)
	}
	return out.send(NewStorm(o))
}

type stormMaker struct {
	rng    *rand.Rand
	s      Storm
	n, job int
	at     time.Time
	fault  *StormFault
}

// NewStorm makes faults one after the other, minutes apart in a fleet of 512 and as
// much nearer as a fleet is larger, whose sites are of 512 each: so many alike at once in one
// site would be an outbreak. Feeds that drop with all that hangs on them, GPUs that fall off the
// bus, jobs that crash on many nodes, cables, and events that mean nothing.
func NewStorm(o StormOptions) Storm {
	m := &stormMaker{rng: rand.New(rand.NewPCG(o.Seed, 0x570a)), at: time.Now().UTC().Add(-24 * time.Hour)} //nolint:gosec // no secret
	m.s.Topology = sites(Topology(o.Servers, ""))
	recent := map[int]time.Time{} // by server, so that faults do not overlap in place
	pick := func() int {
		for range 64 {
			if i := m.rng.IntN(o.Servers); m.at.Sub(recent[i/ServersPerRack]) > 2*time.Hour {
				recent[i/ServersPerRack] = m.at
				return i
			}
		}
		return m.rng.IntN(o.Servers)
	}
	for len(m.s.Events) < o.Events {
		i := pick()
		switch m.rng.IntN(5) {
		case 0:
			m.feedLoss(i/ServersPerRack, o.Servers)
		case 1, 2:
			m.gpuLost(i, m.rng.IntN(GPUsPerServer))
		case 3:
			m.jobCrash(i/ServersPerRack, o.Servers)
		default:
			m.cable(i)
		}
		for range m.rng.IntN(4) {
			m.noise(m.rng.IntN(o.Servers))
		}
		m.at = m.at.Add(time.Duration(60+m.rng.IntN(240)) * time.Second * 512 / time.Duration(o.Servers))
	}
	slices.SortStableFunc(m.s.Events, func(a, b schemas.Event) int { return a.Observed.Compare(b.Observed) })
	return m.s
}

// racksPerSite makes sites of 512 servers.
const racksPerSite = 512 / ServersPerRack

// sites puts the racks of a large fleet into several sites.
func sites(t schemas.Topology) schemas.Topology {
	site, racks := Site, 0
	for i := 0; i < len(t.Resources); i++ {
		if t.Resources[i].Kind != schemas.KindRack {
			continue
		}
		if racks > 0 && racks%racksPerSite == 0 {
			site = fmt.Sprintf("%s-%d", Site, racks/racksPerSite+1)
			t.Resources = append(t.Resources, schemas.Resource{ID: site, Kind: schemas.KindSite})
		}
		racks++
		t.Resources[i].Parent = site
	}
	return t
}

func (m *stormMaker) begin(fault, resource string) {
	m.s.Faults = append(m.s.Faults, StormFault{Fault: fault, Resource: resource})
	m.fault = &m.s.Faults[len(m.s.Faults)-1]
}

// emit adds an event some milliseconds after the fault began.
func (m *stormMaker) emit(after int, ev schemas.Event) {
	m.n++
	ev.ID = "e" + strconv.Itoa(m.n)
	ev.Time = m.at.Add(time.Duration(after+m.rng.IntN(80)) * time.Millisecond)
	ev.Observed = ev.Time.Add(time.Duration(5+m.rng.IntN(900)) * time.Millisecond)
	m.s.Events = append(m.s.Events, ev)
	if m.fault != nil {
		m.fault.Events = append(m.fault.Events, ev.ID)
	}
}

func (m *stormMaker) feedLoss(rack, servers int) {
	pdu := feed(rack, "a")
	m.begin("power.feed_loss", pdu)
	for i := rack * ServersPerRack; i < min((rack+1)*ServersPerRack, servers); i++ {
		for p := range psusPerServer / 2 {
			m.emit(0, schemas.Event{
				Source: schemas.SourceRedfish, Resource: fmt.Sprintf("%s/psu%d", Server(i), p), Type: schemas.EventPSUInputLost,
				Severity: schemas.SeverityError, State: schemas.StateRaised,
				Message: "Power supply has lost its input.",
			})
		}
	}
}

func (m *stormMaker) xid(after, server, gpu, code int, s schemas.Severity, text, job string) {
	ev := schemas.Event{
		Source: schemas.SourceKmsg, Resource: GPU(server, gpu), Type: schemas.EventGPUXID, Code: strconv.Itoa(code), Severity: s,
		Message: fmt.Sprintf("NVRM: Xid (PCI:%s): %d, %s", gpuPCI(gpu), code, text),
	}
	if job != "" {
		ev.SetAttr("workload", job)
	}
	m.emit(after, ev)
}

func (m *stormMaker) gpuLost(server, gpu int) {
	m.begin("gpu.fallen_off_bus", GPU(server, gpu))
	m.xid(0, server, gpu, 79, schemas.SeverityCritical, "GPU has fallen off the bus.", "")
	m.xid(90, server, gpu, 154, schemas.SeverityCritical, "GPU recovery action changed from 0x0 (None) to 0x2 (Node Reboot Required)", "")
	m.emit(4000, schemas.Event{
		Source: schemas.SourceDCGM, Resource: GPU(server, gpu), Type: schemas.EventGPUMissing, Severity: schemas.SeverityCritical,
		State: schemas.StateRaised, Message: "GPU is not listed any more.",
	})
}

func (m *stormMaker) jobCrash(rack, servers int) {
	m.job++
	job := "job-" + strconv.Itoa(m.job)
	w := schemas.Workload{
		ID: job, Start: m.at.Add(-time.Hour), End: m.at.Add(3 * time.Second), Attrs: map[string]string{"owner": "user" + strconv.Itoa(m.job%7)},
	}
	m.begin("workload.error", job)
	for i := rack * ServersPerRack; i < min((rack+1)*ServersPerRack, servers); i++ {
		for g := range GPUsPerServer {
			w.Resources = append(w.Resources, GPU(i, g))
			if g%2 == m.rng.IntN(2) {
				m.xid(0, i, g, 13, schemas.SeverityError, "Graphics SM Warp Exception: Out Of Range Address", job)
			}
			m.xid(600, i, g, 45, schemas.SeverityWarning, "Ch 00000008", job)
		}
	}
	m.emit(2500, schemas.Event{
		Source: schemas.SourceScheduler, Resource: job, Type: schemas.EventWorkloadFailed, Code: "139", Severity: schemas.SeverityError,
		Message: "FAILED",
	})
	m.s.Topology.Workloads = append(m.s.Topology.Workloads, w)
}

func (m *stormMaker) cable(server int) {
	port := fmt.Sprintf("leaf-r%02d/Ethernet%d", server/ServersPerRack+1, server%ServersPerRack*nicsPerServer+1)
	m.begin("network.link_failure", port)
	m.emit(0, schemas.Event{
		Source: schemas.SourceGNMI, Resource: port, Type: schemas.EventPortDown, Severity: schemas.SeverityError, State: schemas.StateRaised,
		Message: "UP to DOWN",
	})
	m.emit(20, schemas.Event{
		Source: schemas.SourceKmsg, Resource: Server(server) + "/nic0", Type: schemas.EventNICDown, Severity: schemas.SeverityError,
		State: schemas.StateRaised, Message: "Link is down",
	})
}

func (m *stormMaker) noise(server int) {
	m.fault = nil
	m.emit(m.rng.IntN(60_000), schemas.Event{
		Source: schemas.SourceIPMI, Resource: Server(server), Type: schemas.EventBMCEvent, Code: "Session", Severity: schemas.SeverityInfo,
		Message: "Session Audit: user logged in",
	})
}
