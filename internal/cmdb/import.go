package cmdb

import (
	"cmp"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"iter"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"auspex/internal/store/audit"
	"auspex/schemas"
)

// AuditKind is what the rows of the audit are about that imports leave.
const AuditKind = "inventory"

// DefaultSource is the source of what is imported without another name.
const DefaultSource = "file"

// Bounds say when an import is refused. Resources, links and workloads are held
// against them each for themselves.
type Bounds struct {
	// MaxRemoved is the share, from 0 to 1, of the resources, of the links or of the
	// kinds and attributes of resources that a source brought that an import may take
	// away, together with what its imports of RemovedWithin have taken.
	MaxRemoved float64 `yaml:"max_removed"`
	// RemovedWithin is for how long the losses of a source add up, so that many small
	// ones do not empty the inventory. What comes back is no loss, and what a person
	// has told to import begins the count anew. 0 holds each import against the one
	// before it alone.
	RemovedWithin time.Duration `yaml:"removed_within"`
	// MaxSkipped is the share of an import's resources, links or workloads that may be
	// unusable.
	MaxSkipped float64 `yaml:"max_skipped"`
}

// DefaultBounds allow a tenth, and a tenth in a week.
func DefaultBounds() Bounds {
	return Bounds{MaxRemoved: .1, RemovedWithin: 7 * 24 * time.Hour, MaxSkipped: .1}
}

// NoBounds let everything pass.
func NoBounds() Bounds { return Bounds{MaxRemoved: 1, MaxSkipped: 1} }

// Validate names the key at fault.
func (b Bounds) Validate() error {
	for _, s := range []struct {
		key   string
		share float64
	}{{"max_removed", b.MaxRemoved}, {"max_skipped", b.MaxSkipped}} {
		if !(s.share >= 0 && s.share <= 1) {
			return fmt.Errorf("%s is %g; it must be a share from 0 to 1", s.key, s.share)
		}
	}
	if b.RemovedWithin < 0 {
		return fmt.Errorf("removed_within is %s; it must not be negative", b.RemovedWithin)
	}
	return nil
}

// ImportOptions say whose records an import brings, and how far it may go.
type ImportOptions struct {
	// Source names who brings the records; empty is [DefaultSource]. An import
	// takes away only what its own source brought before and no other brings.
	Source string
	// Origin is the file, for a person who reads the list of versions.
	Origin string
	Bounds Bounds
	// Told marks an import whose losses a person has agreed to: they do not count
	// against the next ones.
	Told bool
	// Actor is who asks for it, for the audit; empty is this process.
	Actor string
	// DryRun changes nothing; the report says what would change.
	DryRun bool
	// Add makes the draft a part of what its source brings: the rest of that stays.
	// Resources of the same id are joined; a network link takes the place of those of
	// the source that are at the part of a server at its end.
	Add bool
	// Drop names resources that the source of an addition brings no more, with their parts.
	// What another source brings too stays.
	Drop []string
	// Check sees the inventory that the import would change, and may refuse it: nobody else
	// changes that inventory meanwhile.
	Check func(old *Snapshot) error
	// First is done in the transaction of the import before anything else, also where nothing
	// is to be changed.
	First func(ctx context.Context, tx *sql.Tx) error
	// With is done in the transaction of the import, before it is in the audit, and
	// also where nothing is to be changed.
	With func(ctx context.Context, tx *sql.Tx) error
}

// Change is one difference that an import makes.
type Change struct {
	Verb   string // added, changed, removed
	What   string // such as `server gpu-r01-03`
	Detail string // of a change: what it was and what it is
}

// String is one line for people.
func (c Change) String() string {
	if c.Detail == "" {
		return fmt.Sprintf("%-7s  %s", c.Verb, c.What)
	}
	return fmt.Sprintf("%-7s  %s: %s", c.Verb, c.What, c.Detail)
}

// Report says what an import changed, or would change.
type Report struct {
	Version   int64 // that was kept; 0 where nothing was written
	Resources int   // in the inventory now
	Links     int
	Workloads int
	Added     int // resources
	Changed   int
	Removed   int
	Skipped   int // records of the import
	// Held are resources that no source brings any more, and that stay because
	// something that another source brings is a part of them or linked to them.
	Held []string
	// Kept are servers that an import would have removed, and that stay because somebody has
	// them or works on them: why, by name.
	Kept     map[string]string
	Changes  []Change
	Problems []Problem
	// Conflicts is how often sources contradict one another now (`auspex conflicts list`).
	Conflicts int
}

// RefusedError is an import that would take away more than it may.
type RefusedError struct {
	Source  string
	Reasons []string
}

// Error implements error.
func (e *RefusedError) Error() string {
	return fmt.Sprintf("refused for source %q: %s", e.Source, strings.Join(e.Reasons, "; "))
}

// errStale says that another process has changed the inventory meanwhile.
var errStale = errors.New("another process is changing the inventory")

// Import makes the records of a draft what its source brings, and adds its
// workloads or updates those of the same id. The inventory is what all sources
// bring together: where two bring the same resource its attributes are joined, and
// where they differ the later import wins. Bad records are left out and reported. An
// import beyond its bounds is a [*RefusedError] and changes nothing. What is equal
// already is not written.
func (i *Inventory) Import(ctx context.Context, d Draft, o ImportOptions) (Report, error) {
	o.Source = cmp.Or(o.Source, DefaultSource)
	i.mu.Lock()
	defer i.mu.Unlock()
	for attempt := 0; ; attempt++ {
		if o.Check != nil {
			if err := o.Check(i.Snapshot()); err != nil {
				return Report{}, err
			}
		}
		was := i.stored
		r, err := i.importOnce(ctx, d, o)
		if err == nil || i.db == nil || errors.As(err, new(*RefusedError)) {
			return r, err
		}
		if errors.As(err, new(hookError)) { // the transaction is rolled back, and memory is as it was
			i.stored = was
			return r, fmt.Errorf("import inventory: %w", err)
		}
		if ctx.Err() == nil { // memory goes back to what is stored
			err = errors.Join(err, i.load(ctx))
		}
		if !errors.Is(err, errStale) || attempt == 4 || ctx.Err() != nil {
			return r, fmt.Errorf("import inventory: %w", err)
		}
	}
}

// difference is what an import does to what is stored.
type difference struct {
	scope     *scope // that the rest is of; nil is all
	t         schemas.Topology
	sources   []brought // as they will be, the import's own last
	own       brought   // what the import's source will bring
	was       brought   // and what it brought
	before    brought   // what was there before sources were kept
	adopted   bool      // there was something
	version   int64     // of this import
	put       []schemas.Resource
	remove    []string
	addLinks  []schemas.Link
	dropLinks []schemas.Link
	jobs      map[string]schemas.Workload
	putJobs   []schemas.Workload
	same      bool // the source brings what it brought
	conflicts []schemas.Conflict
	heard     witness // who said what
	says      witness // who will
	// What is kept of the version, as it is stored.
	packed func() ([]byte, error)
}

// much tells an import of very many rows.
func (diff *difference) much() bool { return len(diff.put)+len(diff.addLinks) > maxTouched }

// pack begins to pack what is kept of the version, while the rest of it is written.
func (diff *difference) pack(o ImportOptions) {
	diff.packed = sync.OnceValues(func() ([]byte, error) {
		if o.Add {
			return pack(additionOf(diff.was.t, diff.own.t))
		}
		return pack(diff.own.t)
	})
	if diff.much() {
		go func() { _, _ = diff.packed() }()
	}
}

func (i *Inventory) importOnce(ctx context.Context, d Draft, o ImportOptions) (Report, error) {
	old := i.Snapshot()
	diff, report, err := i.compare(ctx, old, d, o)
	if !o.DryRun && err == nil {
		i.problems.Add(float64(len(report.Problems)))
	}
	if err != nil || o.DryRun || diff.same && len(diff.putJobs) == 0 && o.With == nil && o.First == nil {
		return report, err
	}
	if i.db != nil {
		diff.pack(o)
		inTx := i.db.InTx
		if diff.much() {
			inTx = i.db.InLargeTx
		}
		err := inTx(ctx, func(tx *sql.Tx) (err error) {
			if err := i.bump(ctx, tx, !diff.same, len(diff.putJobs) > 0); err != nil {
				return err
			}
			if err := hook(ctx, tx, o.First); err != nil {
				return err
			}
			if err := writeWorkloads(ctx, tx, diff.putJobs); err != nil {
				return err
			}
			if diff.same {
				return hook(ctx, tx, o.With)
			}
			if err := writeResources(ctx, i.db, tx, old.Len() == 0, diff.put, diff.says.of, diff.remove); err != nil {
				return err
			}
			if i.follower != nil {
				if err := i.follower.Follow(ctx, tx, i.following(o.Source, diff.t, diff.put, diff.remove)); err != nil {
					return err
				}
			}
			if err := writeLinks(ctx, i.db, tx, old.Len() == 0, diff.addLinks, diff.says.ties, diff.dropLinks); err != nil {
				return err
			}
			if err := writeSources(ctx, tx, diff.sources); err != nil {
				return err
			}
			if err := diff.says.write(ctx, tx, &diff.heard, &diff); err != nil {
				return err
			}
			if err := i.writeChange(ctx, tx, &diff); err != nil {
				return err
			}
			if report.Version, err = writeVersions(ctx, tx, diff, report, o, i.cfg.KeepVersions); err != nil {
				return err
			}
			if err := writeHistory(ctx, tx, diff, old, o); err != nil {
				return err
			}
			if err := contradictions(ctx, tx, time.Now(), diff.conflicts, &diff); err != nil {
				return err
			}
			if err := hook(ctx, tx, o.With); err != nil {
				return err
			}
			return audit.Append(ctx, tx, audit.Row{
				Time: time.Now().UTC(), Actor: cmp.Or(o.Actor, "auspex"), Verb: "import", Subject: o.Source, Kind: AuditKind, State: "done",
				Detail: fmt.Sprintf(
					"version %d from %s: %d added, %d changed, %d removed", report.Version, cmp.Or(o.Origin, "memory"), report.Added, report.Changed,
					report.Removed,
				),
			})
		})
		if err != nil {
			return report, err
		}
	}
	if i.db == nil {
		i.sources = diff.sources
	}
	g, generation := old.graph, old.Generation
	if !diff.same {
		g, generation = diff.graph(old), generation+1
	}
	i.publish(newSnapshot(g, diff.jobs, old.Version+1, generation))
	return report, nil
}

func hook(ctx context.Context, tx *sql.Tx, f func(context.Context, *sql.Tx) error) error {
	if f == nil {
		return nil
	}
	if err := f(ctx, tx); err != nil {
		return hookError{err}
	}
	return nil
}

// hookError is of what is done in the transaction of an import beside it.
type hookError struct{ error }

// Unwrap returns what went wrong.
func (e hookError) Unwrap() error { return e.error }

// graph is the inventory after the import.
func (diff *difference) graph(old *Snapshot) *graph {
	if n := len(diff.put) + len(diff.remove) + len(diff.addLinks) + len(diff.dropLinks); diff.scope != nil || n < maxTouched && n < old.Len()/staleness {
		return old.with(diff.put, diff.remove, diff.addLinks, diff.dropLinks)
	}
	return newGraph(diff.t, old.space)
}

// inForce leaves out of what an addition adds to what another source has overruled since: to bring it
// again would make it the latest word.
func inForce(brought, more schemas.Topology, now *Snapshot) schemas.Topology {
	added := make(map[string]bool, len(more.Resources))
	for _, r := range more.Resources {
		added[r.ID] = true
	}
	brought.Resources = slices.Clone(brought.Resources)
	for i := range brought.Resources {
		r := &brought.Resources[i]
		is := now.resource(r.ID)
		if is == nil || !added[r.ID] {
			continue
		}
		if r.Kind = is.Kind; r.Parent != is.Parent {
			r.Parent = ""
		}
		r.Attrs = r.Attrs.Common(is.Attrs)
	}
	return brought
}

// drop leaves out resources and their parts, and the links that begin or end there.
func drop(t schemas.Topology, names []string, now *Snapshot) schemas.Topology {
	if len(names) == 0 {
		return t
	}
	gone := func(id string) bool {
		if slices.Contains(names, id) {
			return true
		}
		for _, r := range now.above(now.find(id)) {
			if slices.Contains(names, r.ID) {
				return true
			}
		}
		return false
	}
	t.Resources = slices.DeleteFunc(slices.Clone(t.Resources), func(r schemas.Resource) bool { return gone(r.ID) })
	t.Links = slices.DeleteFunc(slices.Clone(t.Links), func(l schemas.Link) bool { return gone(l.From) || gone(l.To) })
	return t
}

// add joins records to those that their source brought.
func add(before, more schemas.Topology) schemas.Topology {
	own := func(id string) bool { // the end of a cable that is a server's
		return slices.ContainsFunc(more.Resources, func(r schemas.Resource) bool { return r.ID == id })
	}
	moved := map[string]bool{}
	for _, l := range more.Links {
		for _, id := range []string{l.From, l.To} {
			if l.Kind == schemas.LinkNetwork && own(id) {
				moved[id] = true
			}
		}
	}
	var links []schemas.Link
	for _, l := range before.Links {
		if l.Kind != schemas.LinkNetwork || !moved[l.From] && !moved[l.To] {
			links = append(links, l)
		}
	}
	for _, l := range more.Links {
		if !slices.Contains(links, l) {
			links = append(links, l)
		}
	}
	resources, _ := fold([]brought{{t: schemas.Topology{Resources: before.Resources}}, {t: schemas.Topology{Resources: more.Resources}}})
	return schemas.Topology{Version: 1, Resources: resources, Links: links, Workloads: more.Workloads}
}

// maxTouched is how much of an inventory an addition may name without all of it being looked at.
const maxTouched = 4096

// sourcesOf finds what each source brings, of all or of what an addition may change, and who says it.
func (i *Inventory) sourcesOf(ctx context.Context, old *Snapshot, d Draft, o ImportOptions, diff *difference) ([]brought, error) {
	if i.db == nil {
		return i.sources, nil
	}
	if err := i.db.QueryRowContext(ctx, `SELECT COALESCE(MAX(version), 0) FROM inventory_imports`).Scan(&diff.version); err != nil {
		return nil, fmt.Errorf("read the versions of the inventory: %w", err)
	}
	h, err := hear(ctx, i.db, old)
	some := o.Add && !i.wholly && len(d.Topology.Resources)+len(d.Topology.Links) <= maxTouched && len(d.Topology.Workloads) == 0
	if err == nil && len(h.sources) > 0 && some {
		diff.scope, err = h.region(ctx, i.db, d, o)
	}
	if err == nil && diff.scope == nil {
		if h, err = hear(ctx, i.db, old); err == nil && len(h.sources) == 0 { // as it was kept before who says what was
			h.sources, err = readSources(ctx, i.db)
		} else if err == nil {
			err = h.listen(ctx, i.db, nil, nil, true)
		}
	}
	if err == nil {
		err = h.lost(ctx, i.db, o.Source)
	}
	if err != nil {
		return nil, fmt.Errorf("read the sources of the inventory: %w", err)
	}
	diff.heard = h.heard
	return h.sources, nil
}

// compare finds what an import would change, and whether it may.
func (i *Inventory) compare(ctx context.Context, old *Snapshot, d Draft, o ImportOptions) (diff difference, report Report, err error) {
	sources, err := i.sourcesOf(ctx, old, d, o, &diff)
	if err != nil {
		return diff, report, err
	}
	number := int64(0)
	for n := range sources {
		number = max(number, sources[n].number)
	}
	if len(sources) == 0 && old.Len() > 0 {
		diff.version++
		diff.before, diff.adopted = brought{source: DefaultSource, number: 1, base: diff.version, t: old.Topology()}, true
		sources, number = []brought{diff.before}, 1
	}
	diff.version++
	before := brought{number: number + 1}
	own, others := map[string]bool{}, map[string]bool{} // who brings what
	for _, s := range sources {
		of := others
		if s.source == o.Source {
			before, of = s, own
		} else {
			diff.sources = append(diff.sources, s)
		}
		for _, r := range s.t.Resources {
			of[r.ID] = true
		}
	}
	foreign := func(id string) bool { // it is there without this source
		return others[id] || !own[id] && old.find(id) != none
	}
	diff.was = before
	t, problems := validate(d.Topology, d.at, foreign)
	good := t
	if o.Add {
		t, good, problems = extend(diff.was.t, d, o.Drop, old, foreign)
		before.t = inForce(diff.was.t, good, old)
	}
	report.Problems = append(slices.Clip(d.Problems), problems...)
	diff.own = brought{source: o.Source, number: before.number, base: diff.version, t: schemas.Topology{Resources: t.Resources, Links: t.Links}}
	diff.own.resources, diff.own.links = len(t.Resources), len(t.Links)
	if o.Add {
		diff.own.base, diff.own.later = before.base, maps.Clone(before.later)
		if diff.own.later == nil {
			diff.own.later = map[string]int64{}
		}
		for _, r := range good.Resources {
			diff.own.later[r.ID] = diff.version
		}
	}
	if diff.scope != nil {
		diff.own.resources, diff.own.links = before.resources+len(t.Resources)-len(before.t.Resources), before.links+len(t.Links)-len(before.t.Links)
	}
	diff.sources = append(diff.sources, diff.own)
	diff.same = before.source != "" && !diff.adopted && sameRecords(before.t, t)
	if diff.same {
		diff.sources = sources // and their age, which decides where they differ
	}
	keep, err := i.keep(ctx, old, diff.scope)
	if err != nil {
		return diff, report, err
	}
	diff.t, report.Held, report.Kept = join(diff.sources, old.graph, keep)
	if len(diff.sources) > 1 || len(diff.t.Resources) > len(t.Resources) { // else it is what was looked at
		if _, problems := Validate(diff.t); len(problems) > 0 {
			return diff, report, fmt.Errorf("the sources of the inventory contradict one another: %w", Err(problems))
		}
	}
	if !diff.same && i.db != nil {
		diff.says = testimony(diff.sources, diff.t)
	}
	diff.conflicts = slices.DeleteFunc(between(diff.sources, diff.t), func(c schemas.Conflict) bool { return !diff.touches(&c) })
	report.Conflicts = len(diff.conflicts)
	report.Skipped = d.records() - len(good.Resources) - len(good.Links) - len(good.Workloads)
	diff.resources(old, &report)
	diff.links(old, &report)
	report.Resources, report.Links = old.Len()+report.Added-report.Removed, old.tieCount()+len(diff.addLinks)-len(diff.dropLinks)
	diff.workloads(old, t.Workloads)
	report.Workloads = len(diff.jobs)
	if !diff.same {
		l := newLosses(before, diff.t, diff.scope, o.Bounds.RemovedWithin, time.Now())
		if reasons := beyond(o, l, d, good); len(reasons) > 0 {
			return diff, report, &RefusedError{o.Source, reasons}
		}
		if !o.Told {
			diff.own.lost = l.all
			diff.sources[len(diff.sources)-1].lost = l.all
		}
	}
	return diff, report, nil
}

// extend adds to what a source brought. What cannot be used leaves what there was: t is what the source
// brings then, good is what of the addition could be used.
func extend(was schemas.Topology, d Draft, gone []string, old *Snapshot, foreign func(string) bool) (t, good schemas.Topology, problems []Problem) {
	good = d.Topology
	for first := true; ; first = false {
		all := add(drop(inForce(was, good, old), gone, old), good)
		named, rest := make(map[string]bool, len(good.Resources)), map[string]bool{}
		for _, r := range good.Resources {
			named[r.ID] = true
		}
		some := schemas.Topology{Links: good.Links, Workloads: good.Workloads}
		t = schemas.Topology{Version: 1}
		for _, r := range all.Resources {
			if named[r.ID] {
				some.Resources = append(some.Resources, r)
			} else {
				t.Resources, rest[r.ID] = append(t.Resources, r), true
			}
		}
		for _, l := range all.Links {
			if !slices.Contains(good.Links, l) {
				t.Links = append(t.Links, l)
			}
		}
		sound, wrong := validate(some, places{}, func(id string) bool { return rest[id] || foreign(id) })
		looping := loops(sound.Resources, old)
		there := make(map[string]bool, len(sound.Resources))
		sound.Resources = slices.DeleteFunc(sound.Resources, func(r schemas.Resource) bool {
			if looping[r.ID] {
				wrong = append(wrong, Problem{0, fmt.Sprintf("resource %q", r.ID), "its parents form a loop"})
			}
			there[r.ID] = !looping[r.ID]
			return looping[r.ID]
		})
		if first {
			problems = wrong
		}
		if len(sound.Resources) == len(some.Resources) {
			t.Resources, t.Links, t.Workloads = append(t.Resources, sound.Resources...), append(t.Links, sound.Links...), sound.Workloads
			good.Links, good.Workloads = sound.Links, sound.Workloads
			return t, good, problems
		}
		good.Resources = slices.DeleteFunc(slices.Clone(good.Resources), func(r schemas.Resource) bool { return !there[r.ID] })
	}
}

// loops returns those of resources that are part of themselves by what else there is.
func loops(resources []schemas.Resource, old *Snapshot) map[string]bool {
	parent := make(map[string]string, len(resources))
	for _, r := range resources {
		parent[r.ID] = r.Parent
	}
	out := map[string]bool{}
	for _, r := range resources {
		at := r.Parent
		for range maxDepth {
			up, named := parent[at]
			if is := old.resource(at); is != nil && (!named || up == "") {
				up = is.Parent
			}
			if at == r.ID || at == "" {
				break
			}
			at = up
		}
		out[r.ID] = at != ""
	}
	return out
}

// touches reports whether a conflict is about what an import may have changed.
func (diff *difference) touches(c *schemas.Conflict) bool {
	return diff.scope == nil || diff.scope.touched[c.Resource] || diff.scope.touched[c.Right.Resource]
}

func (diff *difference) resources(old *Snapshot, report *Report) {
	keep := make(map[string]bool, len(diff.t.Resources))
	for _, r := range diff.t.Resources {
		keep[r.ID] = true
		was := old.resource(r.ID)
		if was == nil {
			report.Added++
			report.Changes = append(report.Changes, Change{"added", r.Kind + " " + r.ID, ""})
		} else if detail := differs(*was, r); detail != "" {
			report.Changed++
			report.Changes = append(report.Changes, Change{"changed", r.Kind + " " + r.ID, detail})
		} else {
			continue
		}
		diff.put = append(diff.put, r)
	}
	for r := range diff.had(old) {
		if !keep[r.ID] {
			diff.remove = append(diff.remove, r.ID)
			report.Changes = append(report.Changes, Change{"removed", r.Kind + " " + r.ID, ""})
		}
	}
	report.Removed = len(diff.remove)
}

// had yields what there was within the scope of an import.
func (diff *difference) had(old *Snapshot) iter.Seq[*schemas.Resource] {
	if diff.scope == nil {
		return old.All()
	}
	return func(yield func(*schemas.Resource) bool) {
		for _, id := range slices.Sorted(maps.Keys(diff.scope.ids)) {
			if r := old.resource(id); r != nil && !yield(r) {
				return
			}
		}
	}
}

func (diff *difference) links(old *Snapshot, report *Report) {
	if diff.scope != nil {
		diff.addLinks, diff.dropLinks = differ(diff.scope.links, diff.t.Links)
	} else {
		diff.addLinks, diff.dropLinks = differ(slices.Collect(old.allLinks()), diff.t.Links)
	}
	for _, l := range diff.addLinks {
		report.Changes = append(report.Changes, Change{"added", nameLink(l), ""})
	}
	for _, l := range diff.dropLinks {
		report.Changes = append(report.Changes, Change{"removed", nameLink(l), ""})
	}
}

func (diff *difference) workloads(old *Snapshot, ws []schemas.Workload) {
	diff.jobs = maps.Clone(old.workloads)
	for _, w := range ws {
		if have, ok := diff.jobs[w.ID]; !ok || !sameWorkload(have, w) {
			diff.putJobs = append(diff.putJobs, w)
			diff.jobs[w.ID] = w
		}
	}
}

func nameLink(l schemas.Link) string {
	return fmt.Sprintf("link %s from %s to %s", l.Kind, l.From, l.To)
}

// differs says what is different of a resource, "" when nothing is.
func differs(was, is schemas.Resource) string {
	if was == is {
		return ""
	}
	var all []string
	note := func(what, was, is string) {
		if was != is {
			all = append(all, fmt.Sprintf("%s %q → %q", what, was, is))
		}
	}
	note("kind", was.Kind, is.Kind)
	note("parent", was.Parent, is.Parent)
	for k := range was.Attrs.Join(is.Attrs).All() {
		old, had := was.Attrs.Lookup(k)
		now, has := is.Attrs.Lookup(k)
		note(k, old, now)
		if old == now && had != has {
			all = append(all, k+" is empty")
		}
	}
	return strings.Join(all, ", ")
}

type aged struct {
	schemas.Resource
	age int64
}

// fold is what sources say together of each resource, and where it is among them: the later word is
// in force.
func fold(sources []brought) (all []schemas.Resource, at map[string]int) {
	at = map[string]int{}
	said := map[string][]aged{} // where several say something
	var from []int              // who says it first
	for k := range sources {
		s := &sources[k]
		for _, r := range s.t.Resources {
			n, there := at[r.ID]
			if !there {
				at[r.ID] = len(all)
				all, from = append(all, r), append(from, k)
				continue
			}
			if len(said[r.ID]) == 0 {
				said[r.ID] = []aged{{all[n], sources[from[n]].age(r.ID)}}
			}
			said[r.ID] = append(said[r.ID], aged{r, s.age(r.ID)})
		}
	}
	for id, words := range said {
		slices.SortStableFunc(words, func(a, b aged) int { return cmp.Compare(a.age, b.age) })
		have := &all[at[id]]
		*have = words[0].Resource
		for _, r := range words[1:] {
			have.Kind, have.Parent, have.Attrs = r.Kind, cmp.Or(r.Parent, have.Parent), have.Attrs.Join(r.Attrs)
		}
	}
	return all, at
}

// join is what sources bring together. A resource that none of them brings stays,
// as it was, where a part or a link of another one hangs on it.
//
// So do those of keep, with the links between what is there.
func join(sources []brought, old *graph, keep map[string]string) (t schemas.Topology, held []string, kept map[string]string) {
	t.Version = 1
	all, at := fold(sources)
	t.Resources = all
	hold := func(id string) bool {
		for id != "" {
			if _, there := at[id]; there {
				return true
			}
			r := old.resource(id)
			if r == nil {
				return false
			}
			at[id] = len(t.Resources)
			t.Resources = append(t.Resources, *r)
			held = append(held, id)
			id = r.Parent
		}
		return true
	}
	cables := brought{}
	for _, id := range slices.Sorted(maps.Keys(keep)) {
		if _, there := at[id]; there {
			continue
		}
		n := old.find(id)
		at[id] = len(t.Resources)
		t.Resources = append(t.Resources, *old.at(n))
		for _, l := range old.tied(n) {
			cables.t.Links = append(cables.t.Links, old.link(l))
		}
		if isDevice(old.at(n).Kind) {
			if kept == nil {
				kept = map[string]string{}
			}
			kept[id] = keep[id]
		}
	}
	sources = append(slices.Clip(sources), cables)
	for n := 0; n < len(t.Resources); n++ {
		if !hold(t.Resources[n].Parent) { // another source had overruled it, until what it is part of was gone
			t.Resources[n].Parent = ""
		}
	}
	links := make(map[schemas.Link]bool, len(sources[0].t.Links)) // there is always who asks for the import
	for _, s := range sources {
		for _, l := range s.t.Links {
			if !links[l] && hold(l.From) && hold(l.To) {
				links[l] = true
				t.Links = append(t.Links, l)
			}
		}
	}
	return t, held, kept
}

// sameRecords tells whether a source brings what it brought, in whatever order.
func sameRecords(a, b schemas.Topology) bool {
	if len(a.Resources) != len(b.Resources) || len(a.Links) != len(b.Links) {
		return false
	}
	had := make(map[string]schemas.Resource, len(a.Resources))
	for _, r := range a.Resources {
		had[r.ID] = r
	}
	for _, r := range b.Resources {
		if was, ok := had[r.ID]; !ok || differs(was, r) != "" {
			return false
		}
	}
	add, drop := differ(a.Links, b.Links)
	return len(add)+len(drop) == 0
}

// beyond says why an import may not pass.
func beyond(o ImportOptions, l losses, d Draft, t schemas.Topology) (reasons []string) {
	check := func(n, of int, bound float64, format, things string) bool {
		if n == 0 || float64(n) <= bound*float64(of) {
			return false
		}
		reasons = append(reasons, fmt.Sprintf(format, n, of, things, share(n, of), 100*bound))
		return true
	}
	for _, what := range lossKinds {
		format := "%d of its %d %s would be removed (%s; at most %.4g %% may be)"
		if what == lostKind || what == lostAttr {
			format = "%d of %d %s of what it brought would be lost (%s; at most %.4g %% may be)"
		}
		if check(l.count[what], l.of[what], o.Bounds.MaxRemoved, format, string(what)) && l.earlier[what] > 0 {
			reasons[len(reasons)-1] += fmt.Sprintf(", %d of them by imports of the last %s", l.earlier[what], o.Bounds.RemovedWithin)
		}
	}
	const skipped = "%d of %d %s cannot be used (%s; at most %.4g %% may be)"
	all := d.counts()
	check(all[0]-len(t.Resources), all[0], o.Bounds.MaxSkipped, skipped, "resources")
	check(all[1]-len(t.Links), all[1], o.Bounds.MaxSkipped, skipped, "links")
	check(all[2]-len(t.Workloads), all[2], o.Bounds.MaxSkipped, skipped, "workloads")
	return reasons
}

// share is a part of a whole in per cent; all of it is only said where it is all.
func share(n, of int) string {
	if n == of {
		return "all"
	}
	return fmt.Sprintf("%.1f %%", min(99.9, 100*float64(n)/float64(of)))
}

// Version is one import that was kept.
type Version struct {
	Version int64
	Source  string
	Time    time.Time
	Origin  string
	// Resources and Links are what the source brought.
	Resources, Links int
	// Added, Changed and Removed are what that changed of the inventory's resources.
	Added, Changed, Removed int
	// Current tells the one that the source brings now.
	Current bool
}

// ErrNoVersion is wrapped where there is no such version to restore.
var ErrNoVersion = errors.New("no such version of the inventory")

// Versions lists the imports that are kept, the latest first.
func (i *Inventory) Versions(ctx context.Context) ([]Version, error) {
	var out []Version
	current := map[string]bool{}
	err := scan(ctx, i.db, `SELECT version, source, time_ns, origin, resources, links, added, changed, removed
FROM inventory_imports ORDER BY version DESC`, func(rows *sql.Rows) error {
		var v Version
		var ns int64
		if err := rows.Scan(&v.Version, &v.Source, &ns, &v.Origin, &v.Resources, &v.Links, &v.Added, &v.Changed, &v.Removed); err != nil {
			return err
		}
		v.Time, v.Current = fromNano(ns), !current[v.Source]
		current[v.Source] = true
		out = append(out, v)
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("list versions of the inventory: %w", err)
	}
	return out, nil
}

// Restore imports a version again, as the latest of its source; workloads stay as
// they are. Version 0 is the one before the source's current one; the source is
// asked for only then.
func (i *Inventory) Restore(ctx context.Context, version int64, o ImportOptions) (Report, error) {
	if version == 0 {
		all, err := i.Versions(ctx)
		if err != nil {
			return Report{}, err
		}
		source := cmp.Or(o.Source, DefaultSource)
		n := slices.IndexFunc(all, func(v Version) bool { return v.Source == source && !v.Current })
		if n < 0 {
			return Report{}, fmt.Errorf("%w: source %q has none before its current one", ErrNoVersion, source)
		}
		version = all[n].Version
	}
	source, t, err := i.version(ctx, version)
	if err != nil {
		return Report{}, fmt.Errorf("read version %d of the inventory: %w", version, err)
	}
	o.Source = source
	o.Origin = fmt.Sprintf("version %d", version)
	return i.Import(ctx, Draft{Topology: t}, o)
}
