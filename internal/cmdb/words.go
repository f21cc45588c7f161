package cmdb

import (
	"cmp"
	"context"
	"database/sql"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"auspex/internal/store/sqldb"
	"auspex/schemas"
)

// brought is what a source brings: resources and links, and what it has lost of late.
type brought struct {
	source string
	number int64 // by which rows name it
	base   int64 // version of its last import that was no addition: the age of what it says, but of
	later  map[string]int64
	t      schemas.Topology
	lost   map[loss]int64 // when, in Unix nanoseconds
	// How much it brings in all, where t is a part of it.
	resources, links int
}

// age is the version at which a source said what it says of a resource. Where two differ, the later
// one is in force.
func (b *brought) age(id string) int64 {
	if v, ok := b.later[id]; ok {
		return v
	}
	return b.base
}

// witness is who says what, as it is stored.
type witness struct {
	of    map[string]string       // who says a resource as it is
	ties  map[schemas.Link]string // who brings a link
	words map[spoken]saying       // what is said otherwise
}

type spoken struct {
	id     string
	source int64
}

type saying struct {
	later int64 // version of the addition that said it, or 0
	r     schemas.Resource
}

func newWitness() witness {
	return witness{map[string]string{}, map[schemas.Link]string{}, map[spoken]saying{}}
}

// token names a source in a text of tokens.
func token(text string, source, later int64) string {
	if text != "" {
		text += " "
	}
	text += strconv.FormatInt(source, 10)
	if later != 0 {
		text += "@" + strconv.FormatInt(later, 10)
	}
	return text
}

// tokens calls f with each source of a text.
func tokens(text string, f func(source, later int64)) error {
	for part := range strings.FieldsSeq(text) {
		number, at, later := strings.Cut(part, "@")
		n, err := strconv.ParseInt(number, 10, 64)
		v := int64(0)
		if err == nil && later {
			v, err = strconv.ParseInt(at, 10, 64)
		}
		if err != nil {
			return fmt.Errorf("who says it is %q: %w", text, err)
		}
		f(n, v)
	}
	return nil
}

// testimony is who says what, from what they say and what holds.
func testimony(sources []brought, t schemas.Topology) witness {
	w := witness{make(map[string]string, len(t.Resources)), make(map[schemas.Link]string, len(t.Links)), map[spoken]saying{}}
	sources = slices.SortedFunc(slices.Values(sources), func(a, b brought) int { return cmp.Compare(a.number, b.number) })
	at := make(map[string]int, len(t.Resources))
	for k := range t.Resources {
		at[t.Resources[k].ID] = k
		w.of[t.Resources[k].ID] = ""
	}
	for i := range sources {
		s := &sources[i]
		for _, r := range s.t.Resources {
			if k, there := at[r.ID]; !there || t.Resources[k] != r {
				w.words[spoken{r.ID, s.number}] = saying{s.later[r.ID], r}
			} else {
				w.of[r.ID] = token(w.of[r.ID], s.number, s.later[r.ID])
			}
		}
	}
	for _, l := range t.Links {
		w.ties[l] = ""
	}
	for i := range sources {
		for _, l := range sources[i].t.Links {
			if text, there := w.ties[l]; there {
				w.ties[l] = token(text, sources[i].number, 0)
			}
		}
	}
	return w
}

// hearing reads who says what.
type hearing struct {
	sources []brought
	at      map[int64]int // by number
	heard   witness
	old     *Snapshot
}

func hear(ctx context.Context, q querier, old *Snapshot) (*hearing, error) {
	h := &hearing{at: map[int64]int{}, heard: newWitness(), old: old}
	err := scan(ctx, q, `SELECT number, source, version FROM inventory_sources ORDER BY version, number`, func(rows *sql.Rows) error {
		b := brought{later: map[string]int64{}}
		err := rows.Scan(&b.number, &b.source, &b.base)
		h.at[b.number] = len(h.sources)
		h.sources = append(h.sources, b)
		return err
	})
	return h, err
}

// said notes that a source says a resource.
func (h *hearing) said(source, later int64, r schemas.Resource) {
	k, known := h.at[source]
	if !known {
		return
	}
	b := &h.sources[k]
	b.t.Resources = append(b.t.Resources, r)
	if later != 0 {
		b.later[r.ID] = later
	}
}

// listen reads what is said of all resources, or of some, and of the links of all, or of some.
func (h *hearing) listen(ctx context.Context, q querier, resources, ends []string, all bool) error {
	of := func(rows *sql.Rows) error {
		var id, text string
		if err := rows.Scan(&id, &text); err != nil {
			return err
		}
		h.heard.of[id] = text
		is := h.old.resource(id)
		if is == nil {
			return errStale
		}
		return tokens(text, func(source, later int64) { h.said(source, later, *is) })
	}
	otherwise := func(rows *sql.Rows) error {
		var w saying
		var source int64
		var attrs string
		if err := rows.Scan(&w.r.ID, &source, &w.later, &w.r.Kind, &w.r.Parent, &attrs); err != nil {
			return err
		}
		if err := unmarshal(attrs, &w.r.Attrs); err != nil {
			return err
		}
		h.heard.words[spoken{w.r.ID, source}] = w
		h.said(source, w.later, w.r)
		return nil
	}
	tied := func(rows *sql.Rows) error {
		var l schemas.Link
		var text string
		if err := rows.Scan(&l.From, &l.To, &l.Kind, &text); err != nil {
			return err
		}
		if _, known := h.heard.ties[l]; known {
			return nil
		}
		h.heard.ties[l] = text
		return tokens(text, func(source, _ int64) {
			if k, known := h.at[source]; known {
				h.sources[k].t.Links = append(h.sources[k].t.Links, l)
			}
		})
	}
	const (
		said  = `SELECT id, said FROM inventory_resources`
		words = `SELECT resource, source, version, kind, parent, attrs FROM inventory_words`
		ties  = `SELECT from_id, to_id, kind, said FROM inventory_links`
	)
	if all {
		for _, r := range []struct {
			query string
			scan  func(*sql.Rows) error
		}{{said + ` ORDER BY id`, of}, {words + ` ORDER BY resource, source`, otherwise}, {ties + ` ORDER BY from_id, to_id, kind`, tied}} {
			if err := scan(ctx, q, r.query, r.scan); err != nil {
				return err
			}
		}
		return nil
	}
	for _, r := range []struct {
		query string
		of    []string
		scan  func(*sql.Rows) error
	}{
		{said + ` WHERE id IN (`, resources, of},
		{words + ` WHERE resource IN (`, resources, otherwise},
		{ties + ` WHERE from_id IN (`, ends, tied},
		{ties + ` WHERE to_id IN (`, ends, tied},
	} {
		for some := range slices.Chunk(r.of, 500) {
			list, args := sqldb.In(1, some)
			if err := scanWith(ctx, q, r.query+list+`)`, args, r.scan); err != nil {
				return err
			}
		}
	}
	return nil
}

// scope is the part of an inventory that an addition may change, with all that is needed to judge it:
// each resource with what it is part of.
type scope struct {
	ids     map[string]bool
	touched map[string]bool // what is added or dropped, and what has a serial number of it
	ends    map[string]bool // all links of these are within
	links   []schemas.Link
	loose   bool // something of it may go
}

// maxScope is how much is looked at for an addition before all is.
const maxScope = 32768

// region finds the scope of an addition, and hears what is said in it; nil is all, of which nothing is
// heard.
func (h *hearing) region(ctx context.Context, q querier, d Draft, o ImportOptions) (*scope, error) {
	old, sc := h.old, &scope{ids: map[string]bool{}, touched: map[string]bool{}, ends: map[string]bool{}, loose: len(o.Drop) > 0}
	known := map[schemas.Link]bool{}
	up := func(n number) {
		for _, r := range old.above(n) {
			sc.ids[r.ID] = true
		}
	}
	open := func(id string) { // what may go or stay by what hangs on it
		if sc.ends[id] {
			return
		}
		sc.ends[id], sc.ids[id] = true, true
		n := old.find(id)
		if n == none {
			return
		}
		up(n)
		for k := range old.parts(n) {
			sc.ids[old.at(k).ID] = true
		}
		for _, l := range old.tied(n) {
			if link := old.link(l); !known[link] {
				known[link] = true
				sc.links = append(sc.links, link)
				t := old.tie(l)
				up(t.from)
				up(t.to)
			}
		}
	}
	alike := func(r *schemas.Resource) {
		serial := r.Attrs.Get(schemas.AttrSerial)
		if !slices.Contains(unique, r.Kind) || !Identifies(serial) {
			return
		}
		for n := range old.identified(identity(serial)) {
			sc.touched[old.at(n).ID] = true
			up(n)
		}
	}
	touch := func(r *schemas.Resource) {
		sc.touched[r.ID] = true
		open(r.ID)
		alike(r)
	}
	for i := range d.Topology.Resources {
		r := &d.Topology.Resources[i]
		if is := old.resource(r.ID); is != nil {
			touch(is)
		}
		touch(r)
		up(old.find(r.Parent))
	}
	for _, name := range o.Drop {
		if n := old.find(name); n != none {
			touch(old.at(n))
		}
		for r := range old.Below(name) {
			touch(r)
		}
	}
	for _, l := range d.Topology.Links {
		open(l.From)
		open(l.To)
	}
	heard, ends := map[string]bool{}, map[string]bool{}
	news := func(of, known map[string]bool) (out []string) {
		for _, id := range slices.Sorted(maps.Keys(of)) {
			if !known[id] {
				known[id] = true
				out = append(out, id)
			}
		}
		return out
	}
	for {
		if len(sc.ids) > maxScope {
			return nil, nil
		}
		ids, at := news(sc.ids, heard), news(sc.ends, ends)
		if len(ids)+len(at) == 0 {
			return sc, nil
		}
		if err := h.listen(ctx, q, ids, at, false); err != nil {
			return nil, err
		}
		for key, w := range h.heard.words { // which may come into force
			up(old.find(w.r.Parent))
			if sc.ends[key.id] {
				alike(&w.r)
			}
		}
		for _, id := range ids { // what nobody says stays by what hangs on it
			if text, there := h.heard.of[id]; there && text == "" && !h.otherwise(id) && !sc.ends[id] {
				sc.loose = true
				touch(old.resource(id))
			}
		}
	}
}

func (h *hearing) otherwise(id string) bool {
	return slices.ContainsFunc(h.sources, func(s brought) bool { _, ok := h.heard.words[spoken{id, s.number}]; return ok })
}

// write stores who says what, beside what is put and what is linked, which are written with it.
func (w *witness) write(ctx context.Context, tx *sql.Tx, was *witness, diff *difference) error {
	put := make(map[string]bool, len(diff.put))
	for _, r := range diff.put {
		put[r.ID] = true
	}
	for id, text := range w.of {
		if put[id] || was.of[id] == text {
			continue
		}
		if _, err := tx.ExecContext(ctx, `UPDATE inventory_resources SET said=$1 WHERE id=$2`, text, id); err != nil {
			return fmt.Errorf("who says %s: %w", id, err)
		}
	}
	for key, is := range w.words {
		if have, there := was.words[key]; there && have == is {
			continue
		}
		attrs, err := marshal(is.r.Attrs)
		if err == nil {
			_, err = tx.ExecContext(ctx, `INSERT INTO inventory_words (resource, source, version, kind, parent, attrs) VALUES ($1,$2,$3,$4,$5,$6)
ON CONFLICT (resource, source) DO UPDATE SET version=excluded.version, kind=excluded.kind, parent=excluded.parent, attrs=excluded.attrs`,
				key.id, key.source, is.later, is.r.Kind, is.r.Parent, attrs)
		}
		if err != nil {
			return fmt.Errorf("what is said of %s: %w", key.id, err)
		}
	}
	for key := range was.words {
		if _, still := w.words[key]; still {
			continue
		}
		if _, err := tx.ExecContext(ctx, `DELETE FROM inventory_words WHERE resource=$1 AND source=$2`, key.id, key.source); err != nil {
			return fmt.Errorf("what is said of %s: %w", key.id, err)
		}
	}
	for l, text := range w.ties {
		if before, there := was.ties[l]; !there || before == text {
			continue
		}
		if _, err := tx.ExecContext(
			ctx, `UPDATE inventory_links SET said=$1 WHERE from_id=$2 AND to_id=$3 AND kind=$4`, text, l.From, l.To, l.Kind,
		); err != nil {
			return fmt.Errorf("who brings %s: %w", nameLink(l), err)
		}
	}
	return nil
}

// lost reads how much a source brings, and what it has lost of late.
func (h *hearing) lost(ctx context.Context, q querier, source string) error {
	k := slices.IndexFunc(h.sources, func(b brought) bool { return b.source == source })
	if k < 0 {
		return nil
	}
	return scanWith(ctx, q, `SELECT resources, links, lost FROM inventory_imports WHERE source=$1 ORDER BY version DESC LIMIT 1`, []any{source}, func(rows *sql.Rows) error {
		b, packed := &h.sources[k], []byte(nil)
		err := rows.Scan(&b.resources, &b.links, &packed)
		if err == nil {
			b.lost, err = unpackLosses(packed)
		}
		return err
	})
}

func writeSources(ctx context.Context, tx *sql.Tx, sources []brought) error {
	for i := range sources {
		s := &sources[i]
		if _, err := tx.ExecContext(ctx, `INSERT INTO inventory_sources (number, source, version) VALUES ($1,$2,$3)
ON CONFLICT (number) DO UPDATE SET version=excluded.version`, s.number, s.source, s.base); err != nil {
			return fmt.Errorf("source %s: %w", s.source, err)
		}
	}
	return nil
}
