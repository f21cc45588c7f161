package cmdb

import (
	"cmp"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
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

// brought is what a source brings: resources and links, and what it has lost of
// late.
type brought struct {
	source string
	t      schemas.Topology
	lost   map[loss]int64 // when, in Unix nanoseconds
}

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
	t         schemas.Topology // resources and links as they will be
	sources   []brought        // likewise, the import's own last
	before    brought          // what was there before sources were kept
	adopted   bool             // there was something
	put       []schemas.Resource
	remove    []string
	addLinks  []schemas.Link
	dropLinks []schemas.Link
	jobs      map[string]schemas.Workload
	putJobs   []schemas.Workload
	same      bool // the source brings what it brought
	conflicts []schemas.Conflict
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
		err := i.db.InTx(ctx, func(tx *sql.Tx) (err error) {
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
			if err := writeResources(ctx, tx, diff.put, diff.remove); err != nil {
				return err
			}
			if i.follower != nil {
				if err := i.follower.Follow(ctx, tx, i.following(o.Source, diff.t, diff.put, diff.remove)); err != nil {
					return err
				}
			}
			if err := writeLinks(ctx, tx, diff.addLinks, diff.dropLinks); err != nil {
				return err
			}
			if report.Version, err = writeVersions(ctx, tx, diff, report, o.Origin, i.cfg.KeepVersions); err != nil {
				return err
			}
			if err := writeHistory(ctx, tx, diff, old, o); err != nil {
				return err
			}
			if err := contradictions(ctx, tx, time.Now(), diff.conflicts, diff.t); err != nil {
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
	i.sources, i.sourcesOf = diff.sources, i.stored.resources
	g, generation := old.graph, old.Generation
	if !diff.same {
		g, generation = newGraph(diff.t, i.cfg.Site), generation+1
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

// inForce leaves out what another source has overruled since: to bring it again would make
// it the latest word.
func inForce(brought []schemas.Resource, now *Snapshot) []schemas.Resource {
	out := slices.Clone(brought)
	for i := range out {
		r := &out[i]
		is, there := now.Resource(r.ID)
		if !there {
			continue
		}
		if r.Kind = is.Kind; r.Parent != is.Parent {
			r.Parent = ""
		}
		r.Attrs = r.Attrs.Common(is.Attrs)
	}
	return out
}

// drop leaves out resources and their parts, and the links that begin or end there.
func drop(t schemas.Topology, names []string) schemas.Topology {
	if len(names) == 0 {
		return t
	}
	parent := make(map[string]string, len(t.Resources))
	for _, r := range t.Resources {
		parent[r.ID] = r.Parent
	}
	gone := func(id string) bool {
		for steps := 0; id != "" && steps <= len(parent); id, steps = parent[id], steps+1 {
			if slices.Contains(names, id) {
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
	t, _, _ := join([]brought{{t: schemas.Topology{Resources: before.Resources}}, {t: schemas.Topology{Resources: more.Resources}}}, newGraph(schemas.Topology{}, ""), nil)
	return schemas.Topology{Version: 1, Resources: t.Resources, Links: links, Workloads: more.Workloads}
}

// brought returns what each source brings. It is read again where another process has changed it.
func (i *Inventory) brought(ctx context.Context, old *Snapshot) ([]brought, error) {
	if i.db == nil || i.sources != nil && i.sourcesOf == i.stored.resources {
		return i.sources, nil
	}
	sources, err := readSources(ctx, i.db)
	if err != nil {
		return nil, err
	}
	for _, s := range sources {
		for k, r := range s.t.Resources { // most is as it is brought, and need not be kept twice
			if is := old.resource(r.ID); is != nil && *is == r {
				s.t.Resources[k] = *is
			}
		}
	}
	i.sources, i.sourcesOf = sources, i.stored.resources
	return sources, nil
}

// compare finds what an import would change, and whether it may.
func (i *Inventory) compare(ctx context.Context, old *Snapshot, d Draft, o ImportOptions) (diff difference, report Report, err error) {
	sources, err := i.brought(ctx, old)
	if err != nil {
		return diff, report, err
	}
	if len(sources) == 0 && old.Len() > 0 {
		diff.before, diff.adopted = brought{source: DefaultSource, t: old.Topology()}, true
		sources = []brought{diff.before}
	}
	var before brought
	foreign := make(map[string]bool, old.Len()) // what is there without this source
	for r := range old.All() {
		foreign[r.ID] = true
	}
	for _, s := range sources {
		if s.source == o.Source {
			before = s
			for _, r := range s.t.Resources {
				delete(foreign, r.ID)
			}
			continue
		}
		diff.sources = append(diff.sources, s)
	}
	for _, s := range diff.sources {
		for _, r := range s.t.Resources {
			foreign[r.ID] = true
		}
	}
	if o.Add {
		before.t.Resources = inForce(before.t.Resources, old)
		d.Topology, d.at = add(drop(before.t, o.Drop), d.Topology), places{}
	}
	t, problems := validate(d.Topology, d.at, foreign)
	report.Problems = append(slices.Clip(d.Problems), problems...)
	own := brought{source: o.Source, t: schemas.Topology{Resources: t.Resources, Links: t.Links}}
	diff.sources = append(diff.sources, own)
	diff.same = before.source != "" && !diff.adopted && sameRecords(before.t, t)
	if diff.same {
		diff.sources = sources // and their order, which decides where they differ
	}
	keep, err := i.keep(ctx, old)
	if err != nil {
		return diff, report, err
	}
	diff.t, report.Held, report.Kept = join(diff.sources, old.graph, keep)
	if _, problems := Validate(diff.t); len(problems) > 0 {
		return diff, report, fmt.Errorf("the sources of the inventory contradict one another: %w", Err(problems))
	}
	diff.conflicts = between(diff.sources, diff.t)
	report.Conflicts = len(diff.conflicts)
	report.Resources, report.Links = len(diff.t.Resources), len(diff.t.Links)
	report.Skipped = d.records() - len(t.Resources) - len(t.Links) - len(t.Workloads)
	diff.resources(old, &report)
	diff.links(old, &report)
	diff.workloads(old, t.Workloads)
	report.Workloads = len(diff.jobs)
	if !diff.same {
		l := newLosses(before, diff.t, o.Bounds.RemovedWithin, time.Now())
		if reasons := beyond(o, l, d, t); len(reasons) > 0 {
			return diff, report, &RefusedError{o.Source, reasons}
		}
		if !o.Told {
			diff.sources[len(diff.sources)-1].lost = l.all
		}
	}
	return diff, report, nil
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
	for r := range old.All() {
		if !keep[r.ID] {
			diff.remove = append(diff.remove, r.ID)
			report.Changes = append(report.Changes, Change{"removed", r.Kind + " " + r.ID, ""})
		}
	}
	report.Removed = len(diff.remove)
}

func (diff *difference) links(old *Snapshot, report *Report) {
	diff.addLinks, diff.dropLinks = differ(slices.Collect(old.allLinks()), diff.t.Links)
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

// join is what sources bring together. A resource that none of them brings stays,
// as it was, where a part or a link of another one hangs on it.
//
// So do those of keep, with the links between what is there.
func join(sources []brought, old *graph, keep map[string]string) (t schemas.Topology, held []string, kept map[string]string) {
	t.Version = 1
	at := map[string]int{}
	for _, s := range sources {
		for _, r := range s.t.Resources {
			n, there := at[r.ID]
			if !there {
				at[r.ID] = len(t.Resources)
				t.Resources = append(t.Resources, r)
				continue
			}
			have := &t.Resources[n]
			have.Kind, have.Parent = r.Kind, cmp.Or(r.Parent, have.Parent)
			have.Attrs = have.Attrs.Join(r.Attrs)
		}
	}
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
		hold(t.Resources[n].Parent)
	}
	links := map[schemas.Link]bool{}
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
	var packed []byte
	err := i.db.QueryRowContext(ctx, `SELECT source, topology FROM inventory_imports WHERE version=$1`, version).Scan(&o.Source, &packed)
	if errors.Is(err, sql.ErrNoRows) {
		return Report{}, fmt.Errorf("%w: %d is no longer stored", ErrNoVersion, version)
	} else if err != nil {
		return Report{}, fmt.Errorf("read version %d of the inventory: %w", version, err)
	}
	t, err := unpack(packed)
	if err != nil {
		return Report{}, fmt.Errorf("read version %d of the inventory: %w", version, err)
	}
	o.Origin = fmt.Sprintf("version %d", version)
	return i.Import(ctx, Draft{Topology: t}, o)
}
