package control

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"auspex/internal/bmc"
	"auspex/schemas"
)

// Driver is the user's YAML for one way to act, such as a scheduler or the board
// controllers, and its constructor. The value that the registered function returns
// holds the defaults.
type Driver interface {
	// Remediators makes what does the steps, by kind of rung; none where the user did
	// not say whom to ask. It checks the configuration and performs no I/O.
	Remediators(s Settings) (map[string]Remediator, error)
}

// Relief is a driver that knows another way of what a driver before it does, for servers that this one does
// not reach.
type Relief interface {
	// Reliefs makes what does the steps there, by kind of rung.
	Reliefs(s Settings) (map[string]Remediator, error)
}

// Reacher is a remediator that knows, by the inventory alone, on which servers it can do anything.
type Reacher interface {
	Remediator
	Reaches(server string) bool
}

// Servers are those that a driver is for, by an attribute that the inventory has of them; without an attribute,
// all of them.
type Servers struct {
	Attr string   `yaml:"attr"` // such as scheduler
	Is   []string `yaml:"is"`   // one of these
}

// within keeps a driver to its servers: [ErrCannot] for others. In a map of remediators it may stand beside one of
// another driver for the same kind.
type within struct {
	Remediator
	Servers

	resource func(id string) (schemas.Resource, bool)
}

// Keep keeps remediators to the servers that they are for.
func (v Servers) Keep(s Settings, all map[string]Remediator) (map[string]Remediator, error) {
	switch {
	case v.Attr == "" && len(v.Is) == 0:
		return all, nil
	case v.Attr == "" || len(v.Is) == 0:
		return nil, errors.New("servers: attr and is go together, as {attr: scheduler, is: [slurm]}")
	}
	for kind, r := range all {
		all[kind] = within{r, v, s.Resource}
	}
	return all, nil
}

// Reaches implements Reacher.
func (w within) Reaches(server string) bool {
	if w.resource == nil {
		return false
	}
	r, _ := w.resource(server)
	return slices.Contains(w.Is, r.Attrs.Get(w.Attr))
}

func (w within) check(server string) error {
	if w.Reaches(server) {
		return nil
	}
	return fmt.Errorf("%w: the inventory does not have %s of %s as %s", ErrCannot, w.Attr, server, strings.Join(w.Is, " or "))
}

// Plan implements Remediator.
func (w within) Plan(ctx context.Context, s Step) (schemas.Sentence, error) {
	if err := w.check(s.Server); err != nil {
		return schemas.Sentence{}, err
	}
	return w.Remediator.Plan(ctx, s)
}

// Apply implements Remediator.
func (w within) Apply(ctx context.Context, s Step) error {
	if err := w.check(s.Server); err != nil {
		return err
	}
	return w.Remediator.Apply(ctx, s)
}

// Verify implements Remediator. What was sent is read back, also where the inventory says something else by now.
func (w within) Verify(ctx context.Context, s Step) (Verdict, schemas.Sentence, error) {
	return w.Remediator.Verify(ctx, s)
}

// Pursue implements Pursuer.
func (w within) Pursue(ctx context.Context, s Step) error {
	if p, ok := w.Remediator.(Pursuer); ok {
		return p.Pursue(ctx, s)
	}
	return nil
}

// Jobs implements Scheduler.
func (w within) Jobs(ctx context.Context, server string) ([]string, error) {
	j, ok := w.Remediator.(Scheduler)
	if !ok {
		return nil, fmt.Errorf("%w: its scheduler names no jobs", ErrCannot)
	}
	if err := w.check(server); err != nil {
		return nil, err
	}
	return j.Jobs(ctx, server)
}

// among does the steps of a server through the one of some drivers that it is of.
type among []within

func (m among) of(server string) (within, error) {
	var found []within
	for _, w := range m {
		if w.Reaches(server) {
			found = append(found, w)
		}
	}
	attrs := make([]string, len(m))
	for i, w := range m {
		attrs[i] = w.Attr + " " + strings.Join(w.Is, " or ")
	}
	switch len(found) {
	case 1:
		return found[0], nil
	case 0:
		return within{}, fmt.Errorf("%w: the inventory gives %s to none of %s", ErrCannot, server, strings.Join(attrs, ", "))
	}
	return within{}, fmt.Errorf("%w by the inventory: %s", errMany, server)
}

// errMany is of a server that more than one driver is for, which is a mistake: one of them may run jobs there.
var errMany = errors.New("more than one scheduler has it")

// Plan implements Remediator.
func (m among) Plan(ctx context.Context, s Step) (schemas.Sentence, error) {
	w, err := m.of(s.Server)
	if err != nil {
		return schemas.Sentence{}, err
	}
	return w.Plan(ctx, s)
}

// Apply implements Remediator.
func (m among) Apply(ctx context.Context, s Step) error {
	w, err := m.of(s.Server)
	if err != nil {
		return fmt.Errorf("%w: %w", ErrRejected, err)
	}
	return w.Apply(ctx, s)
}

// Verify implements Remediator.
func (m among) Verify(ctx context.Context, s Step) (Verdict, schemas.Sentence, error) {
	w, err := m.of(s.Server)
	if err != nil {
		return Pending, schemas.Sentence{}, err
	}
	return w.Verify(ctx, s)
}

// Pursue implements Pursuer.
func (m among) Pursue(ctx context.Context, s Step) error {
	w, err := m.of(s.Server)
	if err != nil {
		return err
	}
	return w.Pursue(ctx, s)
}

// Jobs implements Scheduler.
func (m among) Jobs(ctx context.Context, server string) ([]string, error) {
	w, err := m.of(server)
	if err != nil {
		return nil, err
	}
	return w.Jobs(ctx, server)
}

// beside is what does the steps of a kind that two drivers do; nil where they do not say for which servers.
func beside(one, other Remediator) Remediator {
	w, ok := other.(within)
	if !ok {
		return nil
	}
	switch one := one.(type) {
	case within:
		return among{one, w}
	case among:
		return append(one, w)
	}
	return nil
}

// chooser knows which of some ways is that of a server.
type chooser interface{ of(s Step) Remediator }

// either does the steps of a server in the one way where that reaches it, else in the other.
type either struct {
	one   Reacher
	other Remediator
}

func (e either) of(s Step) Remediator {
	if e.one.Reaches(s.Server) {
		return e.one
	}
	if more, ok := e.other.(chooser); ok {
		return more.of(s)
	}
	return e.other
}

// settling is either where the first way tells what is so already.
type settling struct{ either }

// Settled implements Settler. The way of a server that does not tell has nothing settled.
func (e settling) Settled(ctx context.Context, s Step) (bool, schemas.Sentence, error) {
	if of, ok := e.of(s).(Settler); ok {
		return of.Settled(ctx, s)
	}
	return false, schemas.Sentence{}, nil
}

// firstReaching does the steps of a server in the first of some ways that reaches it; one that reaches all ends them.
func firstReaching(ways []Remediator) Remediator {
	if first, ok := ways[0].(Reacher); ok && len(ways) > 1 {
		e := either{first, firstReaching(ways[1:])}
		if _, settles := ways[0].(Settler); settles {
			return settling{e}
		}
		return e
	}
	return ways[0]
}

// reaches is 1 for a way that knows its servers.
func reaches(r Remediator) int {
	if _, ok := r.(Reacher); ok {
		return 1
	}
	return 0
}

// Plan implements Remediator.
func (e either) Plan(ctx context.Context, s Step) (schemas.Sentence, error) {
	return e.of(s).Plan(ctx, s)
}

// Apply implements Remediator.
func (e either) Apply(ctx context.Context, s Step) error { return e.of(s).Apply(ctx, s) }

// Verify implements Remediator.
func (e either) Verify(ctx context.Context, s Step) (Verdict, schemas.Sentence, error) {
	return e.of(s).Verify(ctx, s)
}

// Pursue implements Pursuer.
func (e either) Pursue(ctx context.Context, s Step) error {
	if p, ok := e.of(s).(Pursuer); ok {
		return p.Pursue(ctx, s)
	}
	return nil
}

// Settings is what the program, not the user, gives a driver.
type Settings struct {
	Log *slog.Logger
	Now func() time.Time
	// Resource finds a resource of the inventory.
	Resource func(id string) (schemas.Resource, bool)
	Secrets  Secrets
	// Outlets returns what feeds the power supplies of a server; nil knows of none.
	Outlets func(server string) []Outlet
	// Gate keeps collectors and control from speaking to one board controller at the
	// same time; nil lets everyone through.
	Gate *bmc.Gate
	// Tunnels reaches the agents that dial in; nil where none can.
	Tunnels Tunnels
	// Installs is what servers are installed with; nil where nobody knows.
	Installs Installs
	// Validations keeps what was found of servers; nil where nobody does.
	Validations Validations
	// Caps keeps what was set before a power limit of ours; nil where nobody does, and then none is set.
	Caps Caps
	// Feeds tells what is left where a PDU gives no power; ok is false for what is none. Nil knows of none.
	Feeds func(pdu string) (feed Feed, ok bool)
	// Wipes has what workflows that wipe servers found; nil where nobody has.
	Wipes Wipes
	// Foreign keeps what other systems have of machines; nil where nobody does, and then nobody looks.
	Foreign Foreign
	Metrics prometheus.Registerer // nil where nobody counts
}

// Wipes has what workflows that wipe servers found of their drives.
type Wipes interface {
	// Open returns the token with which the workflow of an action on a server, by its id, tells it: the same one each time.
	Open(ctx context.Context, action, server, workflow string) (token string, err error)
	// Close has it taken no more.
	Close(ctx context.Context, action string) error
	// Found is what it told last; false is that it has told nothing.
	Found(ctx context.Context, action string) (schemas.Wipe, bool, error)
}

// Foreign keeps what another system has of machines otherwise than the inventory, or beside it.
type Foreign interface {
	// Servers are those of the inventory that some MAC addresses are of, and the one of a name.
	Servers(name string, macs ...string) []string
	// Said takes all of it that there is in a place of the system now.
	Said(ctx context.Context, place string, all []schemas.Foreign) error
}

// Validations keeps what was found of servers.
type Validations interface {
	// Keep keeps what an agent found, with what else is known of the server of that name. The same one again is kept once.
	Keep(ctx context.Context, v schemas.Validation) error
}

// Installs says what servers are installed with.
type Installs interface {
	// Hardware is the record of a server, by its name. An error that wraps ErrCannot is of a server
	// that there is none of.
	Hardware(ctx context.Context, server string) (schemas.HardwareRecord, error)
	// Template is a version of a template, by its name; 0 is its latest. An error that wraps ErrCannot
	// is of one that there is none of.
	Template(ctx context.Context, name string, version int64) (schemas.Template, error)
}

// Outlet feeds a power supply of a server, as the inventory has it.
type Outlet struct {
	Supply string           // the power supply
	PDU    schemas.Resource // the zero one where the inventory has none for it
	ID     string           // of the outlet; empty where the inventory does not say
}

// Tunnels opens connections to agents that have dialled in.
type Tunnels interface {
	// Dial returns a connection to the agent of a server.
	Dial(ctx context.Context, server string) (net.Conn, error)
}

// Pursuer is a remediator whose effect takes many requests over time, such as the
// eviction of pod after pod.
type Pursuer interface {
	// Pursue sends what is left to do of a step that Apply has begun, and nothing where the
	// world does not show that it has. It is called before each Verify, and after a
	// restart too, so it asks again only for what the world shows as not done. An error
	// that wraps ErrRejected means that the rest will not be done: the step has failed.
	Pursue(ctx context.Context, s Step) error
}

// Ender is a remediator whose step goes on in the world until it is ended there, and can be told by
// its id from every other: what is read of it is certain, also where the answer to it was lost.
type Ender interface {
	// End ends what a step has begun and not brought to its end. It may be called again.
	End(ctx context.Context, s Step) error
}

// Staged is a remediator whose step goes through stages that its peer tells.
type Staged interface {
	// Stages are those of a step that Apply has begun, in order; none where nobody tells them.
	Stages(ctx context.Context, s Step) ([]schemas.Stage, error)
}

// Compound is a remediator that does part of its step through others.
type Compound interface {
	// Through tells it of them, by kind of rung, before the first step.
	Through(others map[string]Remediator)
}

// Follower is a remediator that follows the world by itself while control runs.
type Follower interface {
	// Follow returns when its context ends.
	Follow(ctx context.Context)
}

// Secrets resolves a resource's credential reference.
type Secrets interface {
	// Secret returns the user and the password behind a reference.
	Secret(ctx context.Context, ref string) (user, password string, err error)
}

var (
	driversMu sync.Mutex
	drivers   = map[string]func() Driver{}
)

// Register makes a driver known under its YAML key. It panics on a duplicate.
func Register(name string, defaults func() Driver) {
	driversMu.Lock()
	defer driversMu.Unlock()
	if _, dup := drivers[name]; dup {
		panic("control: duplicate driver " + name)
	}
	drivers[name] = defaults
}

// Drivers are the drivers of a configuration by name: a section each, all with
// their defaults until they are decoded into.
type Drivers map[string]Driver

// DefaultDrivers returns every registered driver with its defaults.
func DefaultDrivers() Drivers {
	driversMu.Lock()
	defer driversMu.Unlock()
	all := Drivers{}
	for name, defaults := range drivers {
		all[name] = defaults()
	}
	return all
}

// Section implements config.Sections.
func (d Drivers) Section(name string) (any, error) {
	if c, ok := d[name]; ok {
		return c, nil
	}
	return nil, fmt.Errorf("unknown driver %q; known are %s", name, strings.Join(d.Keys(), ", "))
}

// Keys implements config.Sections.
func (d Drivers) Keys() []string { return slices.Sorted(maps.Keys(d)) }

// Remediators makes what does the steps of all drivers, by kind of rung. Two drivers for one kind are an error where
// they do not say for which servers: nobody could say which of them acts.
func (d Drivers) Remediators(s Settings) (map[string]Remediator, error) {
	all, by := map[string]Remediator{}, map[string]string{}
	for _, name := range d.Keys() {
		some, err := d[name].Remediators(s)
		if err != nil {
			return nil, fmt.Errorf("control.%s: %w", name, err)
		}
		for kind, r := range some {
			if other, dup := by[kind]; dup {
				if r = beside(all[kind], r); r == nil {
					return nil, fmt.Errorf("control.%s and control.%s both do %s: configure one of them, or say with servers of both which are whose", other, name, kind)
				}
			}
			all[kind], by[kind] = r, name
		}
	}
	others := map[string][]Remediator{}
	for _, name := range d.Keys() {
		relief, ok := d[name].(Relief)
		if !ok {
			continue
		}
		some, err := relief.Reliefs(s)
		if err != nil {
			return nil, fmt.Errorf("control.%s: %w", name, err)
		}
		for kind, r := range some {
			others[kind] = append(others[kind], r)
		}
	}
	for kind, ways := range others { // who knows its servers comes before who does not
		slices.SortStableFunc(ways, func(a, b Remediator) int { return reaches(b) - reaches(a) })
		if first := all[kind]; first != nil {
			ways = append([]Remediator{first}, ways...)
		}
		all[kind] = firstReaching(ways)
	}
	var cappers []Capper
	for _, name := range d.Keys() {
		if l, ok := d[name].(Limiter); ok {
			c, err := l.Capper(s)
			if err != nil {
				return nil, fmt.Errorf("control.%s: %w", name, err)
			}
			cappers = append(cappers, c)
		}
	}
	maps.Copy(all, limiters(cappers, s))
	for _, r := range all {
		if c, ok := r.(Compound); ok {
			c.Through(all)
		}
	}
	return all, nil
}
