package maintenance

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"auspex/internal/cmdb"
	"auspex/schemas"
	"auspex/schemas/faults/propagation"
)

const (
	maxPlaces    = 500                 // resources of one window
	maxReason    = 500                 // characters
	declaredLate = 24 * time.Hour      // how long after it began a window may be declared
	declaredSoon = 90 * 24 * time.Hour // and how long before
)

// BadError says, in a sentence, what is wrong with a request, and which of its fields.
type BadError struct{ Field, Text string }

// Error implements error.
func (e BadError) Error() string { return e.Text }

func bad(field, format string, args ...any) error {
	return BadError{field, fmt.Sprintf(format, args...)}
}

// Request is what somebody asks for, as they said it.
type Request struct {
	Resources   []string          // by any of their names
	Match       map[string]string // attributes; "kind" is the kind, "within" what they are part of
	Matches     func(string) bool // what may match; nil is everything
	From, Until time.Time         // From zero is now
	Seconds     int64             // in place of Until
	Grace       *int              // seconds; nil is the default
	Reason      string
	Pools       []string // whose servers a freeze is for, by name
	// Pool resolves the name of a pool; nil knows of none.
	Pool func(text string) (string, error)
	Work string // "" is maintenance
	By   string
}

// Window returns the window that is asked for, without an id. find resolves a name.
func (r Request) Window(
	names *cmdb.Snapshot, find func(text string) (string, error), model *propagation.Model, now time.Time,
) (m schemas.Maintenance, err error) {
	m = schemas.Maintenance{
		Work: cmp.Or(r.Work, schemas.WorkMaintenance), Reason: strings.TrimSpace(r.Reason), Source: schemas.SourceOperator, By: r.By,
		Declared: now, From: r.From.UTC(), Until: r.Until.UTC(), GraceSeconds: int(schemas.DefaultGrace.Seconds()),
	}
	if r.Grace != nil {
		m.GraceSeconds = *r.Grace
	}
	if r.From.IsZero() {
		m.From = now
	}
	most := schemas.MaxMaintenance
	if m.Work == schemas.WorkFreeze {
		most = schemas.MaxFreeze
	}
	switch {
	case r.Seconds != 0 && !r.Until.IsZero():
		return m, bad("duration_seconds", "The end and the duration are both given.")
	case r.Seconds < 0 || r.Seconds > int64(most/time.Second):
		return m, bad("duration_seconds", "It would last %d s; a window lasts at most %s.", r.Seconds, most)
	case r.Seconds != 0:
		m.Until = m.From.Add(time.Duration(r.Seconds) * time.Second)
	case r.Until.IsZero():
		return m, bad("until", "Until when? Give the end or the duration.")
	}
	if err := m.Check(); err != nil {
		return m, bad("until", "%s.", err)
	}
	switch n := len([]rune(m.Reason)); {
	case !m.Until.After(now):
		return m, bad("until", "It is over: until is %s.", m.Until.Format(time.RFC3339))
	case now.Sub(m.From) > declaredLate || m.From.Sub(now) > declaredSoon:
		return m, bad("from", "from is %s; that is more than %s ago or %s ahead.", m.From.Format(time.RFC3339), declaredLate, declaredSoon)
	case n == 0 || n > maxReason:
		return m, bad("reason", "A reason has 1 to %d characters.", maxReason)
	}
	for _, text := range r.Resources {
		name, err := find(text)
		if err != nil {
			return m, err
		}
		m.Resources = append(m.Resources, name)
	}
	found, err := r.matching(names, find)
	if err != nil {
		return m, err
	}
	m.Resources = append(m.Resources, found...)
	slices.Sort(m.Resources)
	m.Resources = slices.Compact(m.Resources)
	for _, text := range r.Pools {
		if r.Pool == nil || m.Work != schemas.WorkFreeze {
			return m, bad("pools", "A freeze alone is declared for a pool; %s is declared for resources.", m.Work)
		}
		name, err := r.Pool(text)
		if err != nil {
			return m, err
		}
		m.Pools = append(m.Pools, name)
	}
	switch n := len(m.Resources); {
	case n == 0 && len(m.Pools) > 0:
	case n == 0:
		return m, bad("resources", "On what? Nothing is named, and nothing matches.")
	case n > maxPlaces:
		return m, bad("resources", "%d resources; a window has at most %d. Name the racks, rows or PDUs that hold them.", n, maxPlaces)
	}
	works, kinds := model.Works()
	works, kinds = append(slices.Clone(works), schemas.WorkFreeze), maps.Clone(kinds)
	kinds[schemas.WorkFreeze] = schemas.FreezeKinds()
	if !slices.Contains(works, m.Work) {
		return m, bad("work", "There is no kind of work %q; there is: %s.", m.Work, strings.Join(works, ", "))
	}
	for _, name := range m.Resources {
		res, _ := names.Resource(name)
		if !slices.Contains(kinds[m.Work], res.Kind) {
			return m, bad("resources", "%s is a %s; %s is declared for: %s.", name, res.Kind, m.Work, strings.Join(kinds[m.Work], ", "))
		}
	}
	return m, nil
}

// Change is what somebody changes of a window, as they said it; what is zero stays as it is.
type Change struct {
	Until   time.Time
	Seconds int64 // from its beginning, in place of Until
	Reason  *string
	Grace   *int // seconds
}

// Of makes the change of a window that is not over now.
func (c Change) Of(m *schemas.Maintenance, now time.Time) error {
	switch {
	case c.Seconds != 0 && !c.Until.IsZero():
		return bad("duration_seconds", "The end and the duration are both given.")
	case c.Seconds != 0:
		m.Until = m.From.Add(time.Duration(c.Seconds) * time.Second)
	case !c.Until.IsZero():
		m.Until = c.Until.UTC()
	}
	if c.Grace != nil {
		m.GraceSeconds = *c.Grace
	}
	if c.Reason != nil {
		m.Reason = strings.TrimSpace(*c.Reason)
	}
	if err := m.Check(); err != nil {
		return bad("until", "%s.", err)
	}
	switch n := len([]rune(m.Reason)); {
	case !m.Until.After(now):
		return bad("until", "until is %s, which is over. To end the window now, end it.", m.Until.Format(time.RFC3339))
	case n == 0 || n > maxReason:
		return bad("reason", "A reason has 1 to %d characters.", maxReason)
	}
	return nil
}

// matching returns the resources that have all attributes that are asked for.
func (r Request) matching(names *cmdb.Snapshot, find func(string) (string, error)) (out []string, err error) {
	if len(r.Match) == 0 {
		return nil, nil
	}
	within := ""
	if text := r.Match["within"]; text != "" {
		if within, err = find(text); err != nil {
			return nil, err
		}
	}
	for _, res := range names.Resources() {
		ok := (within == "" || names.Covers(within, res.ID)) && (r.Matches == nil || r.Matches(res.ID))
		for k, v := range r.Match {
			switch k {
			case "within":
			case "kind":
				ok = ok && res.Kind == v
			default:
				ok = ok && res.Attrs.Get(k) == v
			}
		}
		if ok {
			out = append(out, res.ID)
		}
	}
	return out, nil
}
