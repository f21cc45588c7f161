// Package propagation compiles fault records: which signs a fault makes visible, on
// which parts of the inventory, how surely and how soon, and what is said of it.
// The correlator reads causes from signs with it. signs.yaml holds what records
// share, the folder records the faults, and a site may add folders of its own.
package propagation

import (
	"slices"
	"strings"
	"time"

	"auspex/schemas"
	"auspex/schemas/faults/sentence"
)

// KindWorkload is the kind of a job where a way through the inventory ends in one.
const KindWorkload = "workload"

// Model is compiled fault records.
type Model struct {
	Signs  []Sign
	Faults []Fault
	// Records are the words about each fault and what else does not depend on how it is seen.
	Records map[string]*Record
	// Shared is said of signs whatever the fault is, Rest of those that nothing told of, Work
	// of declared maintenance, Last of the incident.
	Shared, Rest, Work, Last []Choice
	// Against is said of what was to be expected of a cause and did not come, WouldChange of
	// what would speak for another cause, Steps of the recommended action.
	Against     Choice
	WouldChange []Choice
	Steps       map[string]Choice
	Unnamed     Record        // stands in for faults that no record knows
	UnnamedSign sentence.Text // stands in for the title of reports that are no sign

	byType map[string][]pattern
}

// Sign is something that can be seen, whichever source says so.
type Sign struct {
	Name  string
	Title sentence.Text // as it stands within a sentence
	// On is the kind of part that shows the sign by a fault of its own; "" where
	// several kinds may.
	On string
	// Leak is the probability that the sign is there although no fault that is
	// known explains it. Young replaces it until the sign has lasted for Hold,
	// and for good when it cleared before that. Rare replaces it once the sign
	// has lasted for Long without a break; with 0 it never does. Each further
	// report within a while multiplies Leak by Again, down to Rare; 1 is no change.
	Leak, Young, Rare, Again float64
	Hold, Long               time.Duration

	By      Contact // through which a server tells of it; 0: its silence needs no way
	Contact Contact // that it says is lost; 0 is none

	Bounce int  // sign to derive when this one is raised again and again; -1 is none
	Twin   bool // both ends of a link show it and lose it together
	Job    bool // all reports of one workload are one sign
	Info   bool // speaks although its severity is info
	Each   bool // a sentence tells of each part
	Crash  bool // a server that shows it crashed by itself
	Starts bool // a server that has started has left it behind, whoever told of it
	Boot   bool // says that a system has just started
	// Learned says that the site gave the sign: where nothing explains it, it is told as
	// what no record knows.
	Learned bool
}

// Contact is a set of ways in which a server is heard: through its own system
// or through its board controller. A switch has one way, Host.
type Contact uint8

// The ways.
const (
	Host Contact = 1 << iota
	BMC
)

var contacts = map[string]Contact{"host": Host, "bmc": BMC, "any": Host | BMC, "": 0}

// Fault is a cause that may be blamed, or a harmless explanation.
type Fault struct {
	Name  string // formats, section 3
	Kinds []string
	Prior float64 // log-odds before any sign is weighed
	// ByModel replaces Prior for parts of a model; a site learns it, records have none.
	ByModel  map[string]float64
	Is       string // the state that this fault is, such as "server_down"
	Reset    bool   // over when the server has booted again
	Harmless bool
	Window   Window
	End      bool // either end of a link may be named
	// Together is the share of failures that take a redundant equal along: the
	// beta factor of IEC 61508-6, annex D. 0: nothing stands in for the part.
	Together float64
	Action   string
	Target   string // self or server
	Classes  []Class
	Effects  []Effect
	own      int // classes of the fault itself; those of effects follow
}

// Window says that a fault stands for a maintenance window: it goes by the times that
// were declared and not by lags, and its silence says nothing, since work that was
// declared need not be done.
type Window uint8

// The windows.
const (
	NoWindow Window = iota
	During          // explains what begins within a window
	Overdue         // explains what has outlasted one
)

var windows = map[string]Window{"": NoWindow, "during": During, "overdue": Overdue}

// Signs of maintenance windows, which come from what was declared: that there is one
// for a resource, and that a server or switch is still out after it.
const (
	SignWork    = "work_declared"
	SignNotBack = "not_back"
)

// Planned is the name of the fault that stands for a kind of declared work.
func Planned(work string) string { return "planned." + work }

// Effect is a state, such as "server_down", that a fault brings about.
type Effect struct {
	State string
	Path  []Step // to the parts that come to be in the state; empty: the part itself
	Share float64
	Shows float64
	// SharedShare and SharedShows replace Share and Shows for parts that have
	// another supplier left; with 0 it makes no difference.
	SharedShare, SharedShows float64
	// SharedLate is the share of these parts which go later, since what is left does not
	// carry them for long; the others had no other supplier in truth, and go at once.
	SharedLate float64
	// SharedBack is the share of these parts which come back at another time than the supplier:
	// somebody gave them another one, or they only started anew. 1: it says nothing.
	SharedBack float64
	// SharedWith is the state that such a part's server comes to be in as well; "" is none.
	SharedWith string
	Delay      time.Duration
	// After is what a part shows, or one in it, before it comes to be in the state:
	// a server is hot before it goes down of heat. Empty is nothing.
	After []int
}

// Own returns how many of the classes, the first ones, are the fault's own
// signs; the others follow from its effects.
func (f *Fault) Own() int { return f.own }

// Class is one sign of a fault on all parts that one way through the inventory reaches.
type Class struct {
	Sign int
	Path []Step
	// Share is the expected share of the reachable parts that show the sign
	// when it shows at all; Shows is the probability of the latter.
	Share, Shows   float64
	Within, Before time.Duration // after and before the onset of the fault
	Soon           time.Duration // after the onset its absence begins to speak
	Later          bool          // never makes the fault a suspect
	Jobs           bool          // the way ends in workloads
	Each           string        // kind of what holds parts that hang together; "": all do alike
	Alone          bool          // of a supplier under maintenance: on devices that no other is left to
	After          []int         // signs that the device of a part shows before the part shows this one
	Way            int           // the same number for the same Path
	ID             int           // of the class among all of the model
	// Learned says that the site gave the class: that it comes speaks for the fault, that it does
	// not come says nothing, so that storms without its sign are decided as the records alone would.
	Learned bool
	// Derived classes are not weighed: they tie signs to the fault that follow
	// from a state, for which a fault of its own stands, or go down with it.
	Derived bool
}

// Step is a move through the inventory that arrives at parts of one kind: those that
// are part of something of the kind In, or with Out those that are not, where In is set.
type Step struct {
	Op   Op
	Kind string
	In   string
	Out  bool
}

// Op is how a step moves.
type Op uint8

// The moves. Up and Down follow "is part of"; Powers and Cools go from the
// supplier to the supplied, Powers also through suppliers between, Cools also to
// what is in it, Chills to the servers whose own parts its coolant runs through, and what is in
// them; Feeds goes to the servers
// or switches that a supplier powers, whether the link names them, a power supply
// of theirs, what they stand in, or another supplier between; Jobs goes to the
// workloads that run there; Loose goes down to the parts whose power or network
// link the inventory lacks; Stub goes up to switches that only one other switch
// joins to the network.
const (
	Up Op = iota
	Down
	Powers
	Powered
	Cools
	Cooled
	Net
	NVLink
	PCIe
	Jobs
	Loose
	Feeds
	Fed
	Stub
	Chills
	Chilled
)

var ops = map[string]Op{
	"up": Up, "down": Down, "powers": Powers, "powered": Powered, "cools": Cools, "cooled": Cooled,
	"net": Net, "nvlink": NVLink, "pcie": PCIe, "jobs": Jobs, "loose": Loose, "feeds": Feeds, "fed": Fed, "stub": Stub,
	"chills": Chills, "chilled": Chilled,
}

type pattern struct {
	code   string // "" matches every code
	prefix bool
	within bool // anywhere in the code
	min    int
	sign   int
}

// shownBy returns the only kind whose faults show a sign on the part itself.
func (m *Model) shownBy(sign int) string {
	on := ""
	for i := range m.Faults {
		f := &m.Faults[i]
		if !slices.ContainsFunc(f.Classes, func(c Class) bool { return c.Sign == sign && len(c.Path) == 0 && !c.Later }) {
			continue
		}
		if len(f.Kinds) > 1 || on != "" && on != f.Kinds[0] {
			return ""
		}
		on = f.Kinds[0]
	}
	return on
}

func orOne(p float64) float64 {
	if p == 0 {
		return 1
	}
	return p
}

// Match returns the sign that an event of this type, code and severity is, or
// -1 when it is none. Severities below the sign's lowest do not match.
func (m *Model) Match(typ, code string, severity schemas.Severity) int {
	for _, p := range m.byType[typ] {
		if p.code == code || p.prefix && strings.HasPrefix(code, p.code) || p.within && strings.Contains(code, p.code) {
			if severity.Rank() < p.min {
				return -1
			}
			return p.sign
		}
	}
	return -1
}

// SignNamed returns the index of a sign, or -1.
func (m *Model) SignNamed(name string) int {
	return slices.IndexFunc(m.Signs, func(s Sign) bool { return s.Name == name })
}
