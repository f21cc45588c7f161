// Package policy is what control may do about which fault, as data: ladders of
// rungs, budgets and the storm breaker.
package policy

import (
	"bytes"
	_ "embed"
	"errors"
	"fmt"
	"os"
	"slices"
	"sync"
	"time"

	"go.yaml.in/yaml/v3"

	"auspex/schemas/faults/propagation"
)

//go:embed default.yaml
var defaults []byte

// Set is a policy file.
type Set struct {
	Policies []Policy `yaml:"policies"`
	Budgets  Budgets  `yaml:"budgets"`
	Breaker  Breaker  `yaml:"breaker"`
	// Rules narrow what may be done, by policy, fault, pool and rung.
	Rules []Rule `yaml:"rules,omitempty"`

	records Records
}

// Records says which policy the record of a fault names, "" where it names none.
type Records func(fault string) (policy string)

// Policy is a ladder for some faults.
type Policy struct {
	Name string `yaml:"name"`
	// Faults are those that it is for (formats, section 3). A policy without this key is for
	// the faults whose records name it and that no policy lists.
	Faults []string `yaml:"faults"`
	// Foretold makes it a policy for predictions of its faults, and not for incidents: min_confidence is then how
	// probable the failure must be, and settle how long it must have been foretold.
	Foretold      *Foretold `yaml:"foretold"`
	Mode          string    `yaml:"mode"` // "" is the mode of control as a whole; never above it
	MinConfidence float64   `yaml:"min_confidence"`
	// Settle is how long a root cause must stand before anything is proposed.
	Settle time.Duration `yaml:"settle"`
	// MaxEvidenceAge is how old the incident's last change may be before a step
	// that destroys state.
	MaxEvidenceAge time.Duration `yaml:"max_evidence_age"`
	// Approvals is how many persons must approve a step that waits for a person; 0 means 1.
	Approvals int    `yaml:"approvals"`
	Ladder    []Rung `yaml:"ladder"`
}

// Foretold narrows the predictions that a policy is for.
type Foretold struct {
	// Within is how near the failure must be, by the median of when it is expected; 0 is any time.
	Within time.Duration `yaml:"within"`
}

// Rung is a step of a ladder. Each is verified before the next begins.
type Rung struct {
	Kind  string   `yaml:"kind"`  // one of schemas.ActionKinds (formats, section 5)
	Needs []string `yaml:"needs"` // kinds of this ladder that must be done before
	// Person says that only people can do it: it is shown, never run.
	Person bool `yaml:"person"`
	// Destructive steps end what runs on the server: they count against budgets
	// and rates and are never tried again while the outcome of one is unknown.
	Destructive bool          `yaml:"destructive"`
	Attempts    int           `yaml:"attempts"`  // 0 means 1
	CoolDown    time.Duration `yaml:"cool_down"` // since the last such step on this server
	Verify      time.Duration `yaml:"verify"`    // how long the effect may take, and then the part to be read again
	// Quiet is for how long after the effect the part must be read, by the source
	// that saw the fault and without a sign of it, before the repair counts as
	// verified. Destructive rungs without it get DefaultQuiet; elsewhere 0 means
	// that the rung repairs nothing and its effect alone is verified. Of uncap_power it is for how long the feed must be back.
	Quiet time.Duration `yaml:"quiet"`
	// Approvals is how many persons must approve the rung, in every mode; 0 leaves it to the mode.
	Approvals int `yaml:"approvals"`
	// Quorum is how many views (host, board controller, network) must each have seen for themselves that
	// the part or its server is bad; 0 is DefaultQuorum for what takes the power of a server away, else 1.
	Quorum int `yaml:"quorum"`
	// Optional rungs are skipped, with the reason told, where there is no way to do them here: no driver, or one that
	// cannot, as to install a server to which no template is pinned. So is one of which a rung that it needs was not
	// done itself; that another repair was verified does not stand for it.
	Optional bool `yaml:"optional"`
	// Idle has a rung that takes a server out wait until no job runs on it.
	Idle bool `yaml:"idle"`
	// With are the parameters of kinds that take some: the settings of configure_gpu, the level of validate.
	With With `yaml:"with"`
}

// DefaultQuiet is the quiet time of a destructive rung that names none.
const DefaultQuiet = 2 * time.Minute

// DefaultFeedQuiet is the quiet time of an uncap_power that names none.
const DefaultFeedQuiet = 5 * time.Minute

// Repairs reports whether a rung is to bring the part back.
func (r *Rung) Repairs() bool { return r.Quiet > 0 && !r.Person && !Limits(r.Kind) }

// ends are the kinds of rungs that end what runs on a server, or its state, whatever a
// policy says of them.
var ends = []string{
	"reset_gpu", "reload_driver", "restart_service", "reboot", "power_cycle", "ac_cycle", "power_off", "nmi", "reset_bmc",
	kindReinstall, kindInstall, kindWipe, "update_firmware", "set_bios", "set_raid", "set_network",
}

// EndsWhatRuns reports whether a rung is destructive, by the policy or by its kind.
func (r *Rung) EndsWhatRuns() bool {
	if r.Kind == kindSetBIOS && r.With.values[Reset] != "true" { // what is set waits for a reset of somebody else
		return !r.Person && r.Destructive
	}
	return !r.Person && (r.Destructive || slices.Contains(ends, r.Kind))
}

// restarts are the kinds of rungs after which the drivers of a server are loaded anew.
var restarts = []string{kindReload, "reboot", "power_cycle", "ac_cycle", kindInstall, kindReinstall, kindWipe}

// Restarts reports whether what a server's drivers count begins anew with the rung.
func (r *Rung) Restarts() bool { return slices.Contains(restarts, r.Kind) }

// Silences reports whether what runs on the server falls silent with the rung.
func (r *Rung) Silences() bool { return r.Restarts() && r.Kind != kindReload }

// The kinds of rungs that are known here by what they are.
const (
	kindReload    = "reload_driver"
	kindConfigure = "configure_gpu"
	kindValidate  = "validate"
	kindPowerOff  = "power_off"
	kindSetBoot   = "set_boot"
	kindSetBIOS   = "set_bios"
	kindUpdate    = "update_firmware"
	kindACCycle   = "ac_cycle"
	kindResetBMC  = "reset_bmc"
	kindInstall   = "install"
	kindReinstall = "reinstall"
	kindWipe      = "wipe"
	kindDrain     = "drain"
	kindCordon    = "cordon"
	kindUncordon  = "uncordon"
)

// The rungs that limit what servers draw, and take the limit away. In a ladder they are for what hangs on a feed.
const (
	KindCap   = "cap_power"
	KindUncap = "uncap_power"
)

// Watts is the parameter of cap_power: what a server may draw.
const Watts = "watts"

// Limits reports whether a kind of rung limits what servers draw, or takes that back: it takes nobody out.
func Limits(kind string) bool { return kind == KindCap || kind == KindUncap }

// KindUncordon is the rung that gives a server back to its scheduler.
const KindUncordon = "uncordon"

// Budgets bound how much of the fleet control may hold at a time and touch in an
// hour. 0 means none at all.
type Budgets struct {
	Fleet   int `yaml:"fleet"`    // servers out of the pool by us
	Rack    int `yaml:"rack"`     // of them, in one rack
	PerHour int `yaml:"per_hour"` // destructive steps in any hour
	// Limits are those of what servers share: feeds, leaf switches, pools, models and more.
	Limits []Limit `yaml:"limits,omitempty"`
}

// Breaker stops every action when control wants too much at once: then the fault
// is upstream of the servers, or in us.
type Breaker struct {
	Cases  int           `yaml:"cases"` // new cases with destructive rungs within Window
	Window time.Duration `yaml:"window"`
}

// builtin are the built-in records of faults.
var builtin = sync.OnceValue(func() Records { return Of(propagation.Default()) })

// Of returns which policies the records of a model name.
func Of(m *propagation.Model) Records {
	return func(fault string) string {
		if r := m.Records[fault]; r != nil {
			return r.Policy
		}
		return ""
	}
}

// Follow has policies without a list of faults follow these records.
func (s *Set) Follow(r Records) { s.records = r }

// Missing says for which faults of a model nothing would ever be proposed: those beside the built-in ones
// whose records name a policy that is not there or lists other faults, and those that a policy waits to be
// foretold and that nothing foretells.
func (s *Set) Missing(m *propagation.Model) []string {
	var out []string
	for fault, r := range m.Records {
		if _, ok := s.For(fault); !ok && !r.Builtin && r.Policy != "" {
			out = append(out, fault+" names the policy "+r.Policy+", which is not there or lists other faults")
		}
	}
	foretold := m.Foretold()
	for _, p := range s.Policies {
		for _, f := range p.Faults {
			if p.Foretold != nil && !slices.Contains(foretold, f) {
				out = append(out, "policy "+p.Name+" is for predictions of "+f+", which no metric foretells"+nearestOf(f, foretold))
			}
		}
	}
	slices.Sort(out)
	return out
}

// Default returns the built-in policies.
func Default() Set {
	s, err := parse(defaults)
	if err != nil {
		panic(err) // the embedded file is tested
	}
	return s
}

// Read reads a policy file; an empty name gives the built-in policies.
func Read(name string) (Set, error) {
	if name == "" {
		return Default(), nil
	}
	b, err := os.ReadFile(name)
	if err != nil {
		return Set{}, fmt.Errorf("read policies: %w", err)
	}
	return read(name, b)
}

func parse(b []byte) (Set, error) { return read("", b) }

// read reads the text of a policy file; what is wrong is said with the file, where there is one, and the line.
func read(name string, b []byte) (Set, error) {
	var s Set
	dec := yaml.NewDecoder(bytes.NewReader(b))
	dec.KnownFields(true)
	if err := dec.Decode(&s); err != nil && name != "" {
		return Set{}, fmt.Errorf("read policies %s: %w", name, err)
	} else if err != nil {
		return Set{}, err
	}
	s.records = builtin()
	var doc yaml.Node
	if err := yaml.Unmarshal(b, &doc); err != nil {
		return Set{}, err
	}
	at := func(line int) string {
		switch {
		case line == 0 && name == "":
			return ""
		case line == 0:
			return name + ": "
		case name == "":
			return fmt.Sprintf("line %d: ", line)
		}
		return fmt.Sprintf("%s:%d: ", name, line)
	}
	var errs []error
	for _, w := range s.validate(lines{&doc}) {
		errs = append(errs, fmt.Errorf("%s%w", at(w.line), w.error))
	}
	return s, errors.Join(errs...)
}

// Before returns the policy for predictions of a fault.
func (s *Set) Before(fault string) (Policy, bool) {
	for _, p := range s.Policies {
		if p.Foretold != nil && slices.Contains(p.Faults, fault) {
			return p, true
		}
	}
	return Policy{}, false
}

// For returns the policy of a fault that has come.
func (s *Set) For(fault string) (Policy, bool) {
	for _, p := range s.Policies {
		if p.Foretold == nil && slices.Contains(p.Faults, fault) {
			return p, true
		}
	}
	if s.records == nil {
		return Policy{}, false
	}
	if name := s.records(fault); name != "" {
		for _, p := range s.Policies {
			if p.Faults == nil && p.Name == name {
				return p, true
			}
		}
	}
	return Policy{}, false
}

// Kinds names the rungs of the ladder, from the first on.
func (p *Policy) Kinds() []string {
	out := make([]string, len(p.Ladder))
	for i, r := range p.Ladder {
		out[i] = r.Kind
	}
	return out
}

// As returns the policy with the ladder that it had when a case was opened, where the rungs of that are still there in
// their order: what came in between is not for that case.
func (p *Policy) As(kinds []string) (was Policy, ok bool) {
	was = *p
	was.Ladder = nil
	for _, r := range p.Ladder {
		if n := len(was.Ladder); n < len(kinds) && kinds[n] == r.Kind {
			was.Ladder = append(was.Ladder, r)
		}
	}
	return was, len(was.Ladder) == len(kinds)
}

// Destroys reports whether the ladder has a step that ends what runs.
func (p *Policy) Destroys() bool {
	return slices.ContainsFunc(p.Ladder, func(r Rung) bool { return r.Destructive })
}
