package propagation

import (
	"slices"
	"strings"

	"auspex/schemas"
)

// String returns the move as records write it.
func (o Op) String() string {
	for name, v := range ops {
		if v == o {
			return name
		}
	}
	return "?"
}

// WayString returns a way through the inventory as records write it; the empty way is "".
func WayString(path []Step) string {
	parts := make([]string, len(path))
	for i, s := range path {
		parts[i] = s.Op.String() + ":" + s.Kind
		switch {
		case s.In != "" && s.Out:
			parts[i] += " not in " + s.In
		case s.In != "":
			parts[i] += " in " + s.In
		}
	}
	return strings.Join(parts, " > ")
}

// Works lists the kinds of work that can be declared, each with the kinds of resources
// that it can be declared for, in the order of the records.
func (m *Model) Works() (works []string, kinds map[string][]string) {
	kinds = map[string][]string{}
	for i := range m.Faults {
		f := &m.Faults[i]
		work, ok := strings.CutPrefix(f.Name, Planned(""))
		if f.Window != During || !ok {
			continue
		}
		if !slices.Contains(works, work) {
			works = append(works, work)
		}
		kinds[work] = append(kinds[work], f.Kinds...)
	}
	return works, kinds
}

// Blamable lists the faults that an incident may name, each with the kinds of
// resources that may have it, in the order of the records.
func (m *Model) Blamable() []schemas.FaultKinds {
	var out []schemas.FaultKinds
	at := map[string]int{}
	for i := range m.Faults {
		f := &m.Faults[i]
		if f.Harmless {
			continue
		}
		k, ok := at[f.Name]
		if !ok {
			k = len(out)
			at[f.Name] = k
			out = append(out, schemas.FaultKinds{Fault: f.Name, Title: m.Title(f.Name)})
		}
		for _, kind := range f.Kinds {
			if !slices.Contains(out[k].Kinds, kind) {
				out[k].Kinds = append(out[k].Kinds, kind)
			}
		}
	}
	return out
}
