package cmdb

import (
	"cmp"
	"context"
	"database/sql"
	"slices"
	"strings"
	"time"

	"auspex/internal/store/conflicts"
	"auspex/schemas"
)

// maxConflicts is how many conflicts between sources are kept open. Two lists that have little in
// common are not worked off one by one; the report of the import has all of them counted.
const maxConflicts = 1000

// held are the attributes that two sources must not say differently: by which a thing is known, and
// where it is reached. How they call its model, or what else they note of it, is up to them.
var held = []string{
	schemas.AttrSerial, schemas.AttrUUID, schemas.AttrMAC, schemas.AttrPCI, schemas.AttrRedfishURL, schemas.AttrIPMIIP, schemas.AttrManagementIP,
	schemas.AttrGNMIAddress,
}

// tells reports whether a source is held against others: what machines or sweeps say is compared
// where it is heard, and what a person has accepted of that overrules lists.
func tells(source string) bool { return listed(source) || source == SourceAPI }

// between finds what sources say differently of one resource, and serial numbers that two things
// have of which there can be but one. Sides are in the order of the names of the sources, since an
// import makes its source the latest.
func between(sources []brought, t schemas.Topology) []schemas.Conflict {
	var telling []brought
	for _, s := range sources {
		if tells(s.source) {
			telling = append(telling, s)
		}
	}
	slices.SortFunc(telling, func(a, b brought) int { return strings.Compare(a.source, b.source) })
	return append(differences(telling), twice(telling, t)...)
}

func differences(sources []brought) (out []schemas.Conflict) {
	if len(sources) < 2 {
		return nil
	}
	type said struct {
		by int
		r  *schemas.Resource
	}
	first, more := make(map[string]said, len(sources[0].t.Resources)), map[string][]said{} // most is said once
	for by := range sources {
		for k := range sources[by].t.Resources {
			r := &sources[by].t.Resources[k]
			if _, there := first[r.ID]; !there {
				first[r.ID] = said{by, r}
				continue
			}
			for _, was := range append(more[r.ID], first[r.ID]) {
				note := func(field, left, right string) {
					if left != "" && right != "" && left != right {
						out = append(out, schemas.Conflict{
							Kind: schemas.ConflictTwoSources, Resource: r.ID, Field: field,
							Left:  schemas.ConflictSide{Source: sources[was.by].source, Value: left},
							Right: schemas.ConflictSide{Source: sources[by].source, Value: right},
						})
					}
				}
				note("kind", was.r.Kind, r.Kind)
				note("parent", was.r.Parent, r.Parent)
				for _, attr := range held {
					left, right := was.r.Attrs.Get(attr), r.Attrs.Get(attr)
					if !Identifies(left) || !Identifies(right) || identity(left) == identity(right) || attr == schemas.AttrPCI && PCI(left) == PCI(right) {
						continue
					}
					note(attr, left, right)
				}
			}
			more[r.ID] = append(more[r.ID], said{by, r})
		}
	}
	return out
}

// unique are the kinds of things that are in one place: a disk may hang on two servers, and the
// power supplies of a chassis are of each server in it.
var unique = []string{schemas.KindServer, schemas.KindSwitch, schemas.KindGPU}

// twice finds serial numbers of two things of a kind, which are not of one server: a board may give
// its number to each of its parts.
func twice(sources []brought, t schemas.Topology) (out []schemas.Conflict) {
	at := map[string]int{} // made where it is needed
	server := func(k int) string {
		if len(at) == 0 {
			for k := range t.Resources {
				at[t.Resources[k].ID] = k
			}
		}
		for steps := 0; steps <= len(t.Resources); steps++ {
			if r := &t.Resources[k]; isDevice(r.Kind) {
				return r.ID
			}
			up, there := at[t.Resources[k].Parent]
			if !there {
				break
			}
			k = up
		}
		return t.Resources[k].ID
	}
	by := map[string][]int{}
	for k := range t.Resources {
		r := &t.Resources[k]
		if serial := r.Attrs.Get(schemas.AttrSerial); slices.Contains(unique, r.Kind) && Identifies(serial) {
			key := r.Kind + " " + identity(serial)
			by[key] = append(by[key], k)
		}
	}
	for _, same := range by {
		slices.SortFunc(same, func(a, b int) int { return strings.Compare(t.Resources[a].ID, t.Resources[b].ID) })
		for n := 1; n < len(same); n++ {
			a, b := &t.Resources[same[0]], &t.Resources[same[n]]
			if server(same[0]) == server(same[n]) {
				continue
			}
			out = append(out, schemas.Conflict{
				Kind: schemas.ConflictSerialTwice, Resource: a.ID, Field: schemas.AttrSerial,
				Left:  schemas.ConflictSide{Source: schemas.SideInventory, Value: a.Attrs.Get(schemas.AttrSerial)},
				Right: schemas.ConflictSide{Source: schemas.SideInventory, Value: b.Attrs.Get(schemas.AttrSerial), Resource: b.ID},
			})
		}
	}
	name(sources, out)
	return out
}

// name says of sides which source brings them, where one of those that are held against others does.
func name(sources []brought, all []schemas.Conflict) {
	type said struct{ id, value string }
	sides := map[said][]*schemas.ConflictSide{}
	for i := range all {
		c := &all[i]
		for _, side := range []*schemas.ConflictSide{&c.Left, &c.Right} {
			k := said{cmp.Or(side.Resource, c.Resource), side.Value}
			sides[k] = append(sides[k], side)
		}
	}
	if len(sides) == 0 {
		return
	}
	for _, s := range sources {
		for k := range s.t.Resources {
			r := &s.t.Resources[k]
			for _, side := range sides[said{r.ID, r.Attrs.Get(schemas.AttrSerial)}] {
				side.Source = s.source
			}
		}
	}
}

// contradictions opens what is found between sources, and settles what is no more, within the
// transaction of the import.
func contradictions(ctx context.Context, tx *sql.Tx, now time.Time, found []schemas.Conflict, diff *difference) error {
	slices.SortFunc(found, func(a, b schemas.Conflict) int {
		return cmp.Or(strings.Compare(a.Resource, b.Resource), strings.Compare(a.Field, b.Field), strings.Compare(conflicts.ID(&a), conflicts.ID(&b)))
	})
	still, subjects := make(map[string]bool, len(found)), make(map[string]bool, len(found))
	about := func(c *schemas.Conflict) string {
		return strings.Join([]string{c.Resource, c.Field, c.Left.Source, c.Right.Source, c.Right.Resource}, "\x00")
	}
	for i := range found {
		still[conflicts.ID(&found[i])], subjects[about(&found[i])] = true, true
	}
	t := &diff.t
	there := make(map[string]bool, len(t.Resources))
	open := 0
	for _, kind := range []string{schemas.ConflictTwoSources, schemas.ConflictSerialTwice} {
		all, err := conflicts.Open(ctx, tx, kind)
		if err != nil {
			return err
		}
		for i := range all {
			c := &all[i]
			if !ours(c) || !diff.touches(c) {
				continue
			}
			if still[conflicts.ID(c)] {
				open++
				continue
			}
			if subjects[about(c)] { // other values, which give way below
				continue
			}
			if len(there) == 0 {
				for k := range t.Resources {
					there[t.Resources[k].ID] = true
				}
			}
			why := conflicts.WhyAgree
			if !there[c.Resource] || c.Right.Resource != "" && !there[c.Right.Resource] {
				why = conflicts.WhyGone
			}
			if err := conflicts.Close(ctx, tx, now, c.ID, why); err != nil {
				return err
			}
		}
	}
	_, err := conflicts.Seen(ctx, tx, now, found[:min(len(found), max(maxConflicts, open))]...)
	return err
}

// ours reports whether a conflict is between sources of the inventory, and not with what was read
// from machines.
func ours(c *schemas.Conflict) bool {
	for _, side := range []schemas.ConflictSide{c.Left, c.Right} {
		if !tells(side.Source) || slices.Contains([]string{"redfish", "ipmi", schemas.SideLLDP, schemas.SideTinkerbell}, side.Source) {
			return false
		}
	}
	return c.Kind == schemas.ConflictSerialTwice || c.Left.Source != schemas.SideInventory
}
