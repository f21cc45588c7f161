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

	"auspex/internal/nearest"
	"auspex/schemas"
	"auspex/schemas/faults/propagation"
)

//go:embed default.yaml
var defaults []byte

// Set is a policy file.
type Set struct {
	Policies []Policy `yaml:"policies"`
	Budgets  Budgets  `yaml:"budgets"`
	Breaker  Breaker  `yaml:"breaker"`

	records Records
}

// Records says which policy the record of a fault names, "" where it names none.
type Records func(fault string) (policy string)

// Policy is a ladder for some faults.
type Policy struct {
	Name string `yaml:"name"`
	// Faults are those that it is for (formats, section 3). A policy without this key is for
	// the faults whose records name it and that no policy lists.
	Faults        []string `yaml:"faults"`
	Mode          string   `yaml:"mode"` // "" is the mode of control as a whole; never above it
	MinConfidence float64  `yaml:"min_confidence"`
	// Settle is how long a root cause must stand before anything is proposed.
	Settle time.Duration `yaml:"settle"`
	// MaxEvidenceAge is how old the incident's last change may be before a step
	// that destroys state.
	MaxEvidenceAge time.Duration `yaml:"max_evidence_age"`
	Ladder         []Rung        `yaml:"ladder"`
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
	// that the rung repairs nothing and its effect alone is verified.
	Quiet time.Duration `yaml:"quiet"`
	// With are the parameters of kinds that take some: the settings of configure_gpu, the level of validate.
	With With `yaml:"with"`
}

// DefaultQuiet is the quiet time of a destructive rung that names none.
const DefaultQuiet = 2 * time.Minute

// Repairs reports whether a rung is to bring the part back.
func (r *Rung) Repairs() bool { return r.Quiet > 0 && !r.Person }

// ends are the kinds of rungs that end what runs on a server, or its state, whatever a
// policy says of them.
var ends = []string{
	"reset_gpu", "reload_driver", "restart_service", "reboot", "power_cycle", "ac_cycle", "power_off", "nmi", "reset_bmc",
	kindReinstall, kindInstall, "wipe", "update_firmware", "set_bios", "set_raid", "set_network",
}

// EndsWhatRuns reports whether a rung is destructive, by the policy or by its kind.
func (r *Rung) EndsWhatRuns() bool {
	if r.Kind == kindSetBIOS && r.With.values[Reset] != "true" { // what is set waits for a reset of somebody else
		return !r.Person && r.Destructive
	}
	return !r.Person && (r.Destructive || slices.Contains(ends, r.Kind))
}

// restarts are the kinds of rungs after which the drivers of a server are loaded anew.
var restarts = []string{kindReload, "reboot", "power_cycle", "ac_cycle", kindInstall, kindReinstall}

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
)

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

// Missing returns the faults of a model, beside the built-in ones, whose records name
// a policy that no policy without a list of faults has the name of: nothing
// would ever be proposed for them.
func (s *Set) Missing(m *propagation.Model) []string {
	var out []string
	for fault, r := range m.Records {
		if _, ok := s.For(fault); !ok && !r.Builtin && r.Policy != "" {
			out = append(out, fault+" names the policy "+r.Policy)
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
	s, err := parse(b)
	if err != nil {
		return Set{}, fmt.Errorf("read policies %s: %w", name, err)
	}
	return s, nil
}

func parse(b []byte) (Set, error) {
	var s Set
	dec := yaml.NewDecoder(bytes.NewReader(b))
	dec.KnownFields(true)
	if err := dec.Decode(&s); err != nil {
		return Set{}, err
	}
	s.records = builtin()
	return s, s.validate()
}

func (s *Set) validate() error {
	var errs []error
	for i := range s.Budgets.Limits {
		errs = append(errs, s.Budgets.Limits[i].check(i+1))
	}
	seen := map[string]string{}
	for i := range s.Policies {
		p := &s.Policies[i]
		if p.Name == "" || len(p.Ladder) == 0 {
			errs = append(errs, fmt.Errorf("policy %d: name and ladder are required", i+1))
		}
		if p.MinConfidence < 0 || p.MinConfidence > 1 {
			errs = append(errs, fmt.Errorf("policy %s: min_confidence is %g; a probability is 0 to 1", p.Name, p.MinConfidence))
		}
		for _, f := range p.Faults {
			if other, dup := seen[f]; dup {
				errs = append(errs, fmt.Errorf("policy %s: fault %s is already in policy %s", p.Name, f, other))
			}
			seen[f] = p.Name
		}
		var kinds []string
		for j := range p.Ladder {
			r := &p.Ladder[j]
			if known := schemas.ActionKinds(); !slices.Contains(known, r.Kind) {
				errs = append(errs, unknownKind(p.Name, r.Kind, known))
			}
			if r.Destructive && !r.Person && r.Quiet == 0 {
				r.Quiet = DefaultQuiet
			}
			if r.Quiet < 0 {
				errs = append(errs, fmt.Errorf("policy %s: quiet time of rung %s is negative", p.Name, r.Kind))
			}
			for _, err := range r.With.check(r.Kind) {
				errs = append(errs, fmt.Errorf("policy %s: rung %s: %w", p.Name, r.Kind, err))
			}
			if r.Kind == KindUncordon &&
				!slices.ContainsFunc(p.Ladder[:j], func(b Rung) bool { return b.Repairs() && slices.Contains(r.Needs, b.Kind) }) {
				errs = append(errs, fmt.Errorf("policy %s: uncordon must name a repair in needs: an earlier rung with a quiet time", p.Name))
			}
			for _, n := range r.Needs {
				if !slices.Contains(kinds, n) {
					errs = append(errs, fmt.Errorf("policy %s: rung %s needs %s, which is not an earlier rung", p.Name, r.Kind, n))
				}
			}
			if r.Destructive && r.Verify <= 0 {
				errs = append(errs, fmt.Errorf("policy %s: rung %s is destructive and has no verify time", p.Name, r.Kind))
			}
			kinds = append(kinds, r.Kind)
		}
	}
	return errors.Join(errs...)
}

func unknownKind(policy, kind string, known []string) error {
	if near := nearest.Words(kind, slices.Values(known), 1); len(near) > 0 {
		return fmt.Errorf("policy %s: unknown rung %q; the nearest known is %s", policy, kind, near[0])
	}
	return fmt.Errorf("policy %s: unknown rung %q", policy, kind)
}

// For returns the policy of a fault.
func (s *Set) For(fault string) (Policy, bool) {
	for _, p := range s.Policies {
		if slices.Contains(p.Faults, fault) {
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

// Destroys reports whether the ladder has a step that ends what runs.
func (p *Policy) Destroys() bool {
	return slices.ContainsFunc(p.Ladder, func(r Rung) bool { return r.Destructive })
}
