package cmdb

import (
	"encoding/json"
	"time"

	"auspex/schemas"
)

// lossKind is what a source can lose; they are held against the bounds each for
// itself. What stays may be emptied too: without its kind nobody knows a server, and
// without its addresses no collector reads it.
type lossKind string

const (
	lostResource lossKind = "resources"
	lostLink     lossKind = "links"
	lostKind     lossKind = "kinds"
	lostAttr     lossKind = "attributes"
)

var lossKinds = []lossKind{lostResource, lostLink, lostKind, lostAttr}

// loss is something that a source brought and that is no longer there.
type loss struct {
	What lossKind
	ID   string // of a resource; of a link, where it begins
	Of   string // the kind or the attribute that was; of a link, its kind
	To   string // of a link, where it ends
}

// losses are what an import would lose, beside what its source has lost of late and
// what has not come back since. Of an addition, what is looked at is in its scope.
type losses struct {
	all                map[loss]int64
	count, of, earlier map[lossKind]int
}

func newLosses(before brought, after schemas.Topology, sc *scope, within time.Duration, now time.Time) losses {
	l := losses{all: map[loss]int64{}, count: map[lossKind]int{}, of: map[lossKind]int{}, earlier: map[lossKind]int{}}
	if before.source == "" { // it has nothing to lose
		return l
	}
	is := make(map[string]schemas.Resource, len(after.Resources))
	for _, r := range after.Resources {
		is[r.ID] = r
	}
	links := make(map[schemas.Link]bool, len(after.Links))
	for _, x := range after.Links {
		links[x] = true
	}
	gone := func(x loss) bool {
		r, there := is[x.ID]
		switch x.What {
		case lostResource:
			return !there
		case lostLink:
			return !links[schemas.Link{From: x.ID, To: x.To, Kind: x.Of}]
		case lostKind:
			return there && r.Kind != x.Of
		default:
			return there && r.Attrs.Get(x.Of) == ""
		}
	}
	had := map[loss]bool{}
	note := func(x loss) {
		l.of[x.What]++
		had[x] = true
		if gone(x) {
			l.all[x] = now.UnixNano()
			l.count[x.What]++
		}
	}
	for _, r := range before.t.Resources {
		note(loss{What: lostResource, ID: r.ID})
		if _, there := is[r.ID]; !there {
			continue
		}
		note(loss{What: lostKind, ID: r.ID, Of: r.Kind})
		for k, v := range r.Attrs.All() {
			if v != "" {
				note(loss{What: lostAttr, ID: r.ID, Of: k})
			}
		}
	}
	for _, x := range before.t.Links {
		note(loss{What: lostLink, ID: x.From, Of: x.Kind, To: x.To})
	}
	if sc != nil { // of all that the source brings
		l.of[lostResource], l.of[lostLink] = max(l.of[lostResource], before.resources), max(l.of[lostLink], before.links)
		l.of[lostKind], l.of[lostAttr] = max(l.of[lostKind], before.resources), max(l.of[lostAttr], before.resources)
	}
	for x, at := range before.lost {
		if sc != nil && !sc.ids[x.ID] { // nothing is known to have come back
			l.all[x] = at
			continue
		}
		if had[x] || now.Sub(time.Unix(0, at)) >= within || !gone(x) {
			continue
		}
		l.all[x] = at
		l.count[x.What]++
		l.of[x.What]++
		l.earlier[x.What]++
	}
	return l
}

// entry is a loss as it is stored.
type entry struct {
	loss
	At int64
}

func packLosses(lost map[loss]int64) ([]byte, error) {
	if len(lost) == 0 {
		return nil, nil
	}
	all := make([]entry, 0, len(lost))
	for x, at := range lost {
		all = append(all, entry{x, at})
	}
	text, err := json.Marshal(all)
	if err != nil {
		return nil, err
	}
	return compress(text)
}

func unpackLosses(packed []byte) (map[loss]int64, error) {
	if len(packed) == 0 {
		return nil, nil
	}
	text, err := decompress(packed)
	if err != nil {
		return nil, err
	}
	var all []entry
	if err := json.Unmarshal(text, &all); err != nil {
		return nil, err
	}
	lost := make(map[loss]int64, len(all))
	for _, e := range all {
		lost[e.loss] = e.At
	}
	return lost, nil
}
