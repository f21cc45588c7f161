package cmdb

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/klauspost/compress/zstd"

	"auspex/internal/store/sqldb"
	"auspex/schemas"
)

// maxVersion bounds a version of the inventory when it is unpacked, in bytes.
const maxVersion = 4 << 30

func pack(v any) ([]byte, error) {
	text, err := json.Marshal(v)
	if err != nil {
		return nil, err
	}
	return compress(text)
}

func compress(text []byte) ([]byte, error) {
	w, err := zstd.NewWriter(nil, zstd.WithEncoderConcurrency(1))
	if err != nil {
		return nil, err
	}
	return w.EncodeAll(text, nil), nil
}

func unpack[T any](packed []byte) (v T, err error) {
	text, err := decompress(packed)
	if err != nil {
		return v, err
	}
	return v, json.Unmarshal(text, &v)
}

func decompress(packed []byte) ([]byte, error) {
	r, err := zstd.NewReader(nil, zstd.WithDecoderConcurrency(1), zstd.WithDecoderMaxMemory(maxVersion))
	if err != nil {
		return nil, err
	}
	defer r.Close()
	return r.DecodeAll(packed, nil)
}

// readSources returns what each source brings, in the order of their imports, as it was kept before
// who says what was.
func readSources(ctx context.Context, q querier) ([]brought, error) {
	var out []brought
	err := scan(ctx, q, `SELECT version, source, topology, lost FROM inventory_imports
WHERE version IN (SELECT MAX(version) FROM inventory_imports GROUP BY source) ORDER BY version`, func(rows *sql.Rows) error {
		b := brought{number: int64(len(out) + 1)}
		var packed, lost []byte
		if err := rows.Scan(&b.base, &b.source, &packed, &lost); err != nil {
			return err
		}
		var err, err2 error
		b.t, err = unpack[schemas.Topology](packed)
		b.lost, err2 = unpackLosses(lost)
		out = append(out, b)
		return errors.Join(err, err2)
	})
	return out, err
}

// addition is what an addition changed of what its source brings: what it says now, what it said of
// the same before, and what it says no more.
type addition struct {
	Put       []schemas.Resource `json:"put,omitempty"`
	Was       []schemas.Resource `json:"was,omitempty"` // of what is put and of what is gone
	Gone      []string           `json:"gone,omitempty"`
	AddLinks  []schemas.Link     `json:"add_links,omitempty"`
	DropLinks []schemas.Link     `json:"drop_links,omitempty"`
}

func additionOf(was, is schemas.Topology) (a addition) {
	had := make(map[string]schemas.Resource, len(was.Resources))
	for _, r := range was.Resources {
		had[r.ID] = r
	}
	for _, r := range is.Resources {
		before, there := had[r.ID]
		if delete(had, r.ID); there && before == r {
			continue
		}
		if a.Put = append(a.Put, r); there {
			a.Was = append(a.Was, before)
		}
	}
	for _, id := range slices.Sorted(maps.Keys(had)) {
		a.Gone, a.Was = append(a.Gone, id), append(a.Was, had[id])
	}
	a.AddLinks, a.DropLinks = differ(was.Links, is.Links)
	return a
}

// again makes the addition to what its source brought.
func (a *addition) again(t schemas.Topology) schemas.Topology {
	return a.change(t, a.Put, a.AddLinks, a.DropLinks)
}

// back takes it from what its source brings.
func (a *addition) back(t schemas.Topology) schemas.Topology {
	return a.change(t, a.Was, a.DropLinks, a.AddLinks)
}

func (a *addition) change(t schemas.Topology, put []schemas.Resource, add, drop []schemas.Link) schemas.Topology {
	named := map[string]bool{}
	for _, of := range [][]schemas.Resource{a.Put, a.Was} {
		for _, r := range of {
			named[r.ID] = true
		}
	}
	t.Resources = append(slices.DeleteFunc(slices.Clone(t.Resources), func(r schemas.Resource) bool { return named[r.ID] }), put...)
	t.Links = append(slices.DeleteFunc(slices.Clone(t.Links), func(l schemas.Link) bool { return slices.Contains(drop, l) }), add...)
	return t
}

// writeVersions keeps what the import's source brings now, or what an addition changed of it, and
// forgets what is older than the last keep imports of it.
func writeVersions(ctx context.Context, tx *sql.Tx, diff difference, r Report, o ImportOptions, keep int) (int64, error) {
	insert := func(b brought, version int64, origin string, r Report, packed []byte, added bool, before []byte) error {
		lost, err := packLosses(b.lost)
		if err != nil {
			return err
		}
		_, err = tx.ExecContext(ctx, `INSERT INTO inventory_imports
(version, source, time_ns, origin, resources, links, added, changed, removed, topology, lost, addition, before)
VALUES ($1,$2,$3,$4,$5,$6,$7,$8,$9,$10,$11,$12,$13)`,
			version, b.source, time.Now().UnixNano(), origin, b.resources, b.links, r.Added, r.Changed, r.Removed, packed, lost, added, before)
		return err
	}
	if diff.adopted {
		b := diff.before
		b.resources, b.links = len(b.t.Resources), len(b.t.Links)
		packed, err := pack(b.t)
		if err == nil {
			err = insert(b, b.base, "before versions were kept", Report{}, packed, false, nil)
		}
		if err != nil {
			return 0, err
		}
	}
	var before []byte
	if !o.Add {
		last, err := sqldb.Rows(ctx, tx, func(rows *sql.Rows) (added bool, err error) { return added, rows.Scan(&added) },
			`SELECT addition FROM inventory_imports WHERE source=$1 ORDER BY version DESC LIMIT 1`, diff.own.source)
		if err == nil && len(last) > 0 && last[0] {
			before, err = pack(diff.was.t)
		}
		if err != nil {
			return 0, err
		}
	}
	packed, err := diff.packed()
	if err == nil {
		err = insert(diff.own, diff.version, o.Origin, r, packed, o.Add, before)
	}
	if err != nil {
		return 0, err
	}
	_, err = tx.ExecContext(ctx, `DELETE FROM inventory_imports WHERE source=$1 AND version <=
(SELECT version FROM inventory_imports WHERE source=$2 ORDER BY version DESC LIMIT 1 OFFSET $3)`, diff.own.source, diff.own.source, keep)
	return diff.version, err
}

// version returns what a source brought at a version that is kept.
func (i *Inventory) version(ctx context.Context, version int64) (source string, t schemas.Topology, err error) {
	if err := i.db.QueryRowContext(ctx, `SELECT source FROM inventory_imports WHERE version=$1`, version).Scan(&source); errors.Is(err, sql.ErrNoRows) {
		return "", t, fmt.Errorf("%w: %d is no longer stored", ErrNoVersion, version)
	} else if err != nil {
		return "", t, err
	}
	type step struct {
		version        int64
		added          bool
		packed, before []byte
	}
	var steps []step // the latest first
	err = scanWith(ctx, i.db, `SELECT version, addition, topology, before FROM inventory_imports WHERE source=$1 ORDER BY version DESC`, []any{source},
		func(rows *sql.Rows) error {
			var s step
			err := rows.Scan(&s.version, &s.added, &s.packed, &s.before)
			steps = append(steps, s)
			return err
		})
	if err != nil {
		return "", t, err
	}
	at := slices.IndexFunc(steps, func(s step) bool { return s.version == version })
	through := func(some []step, change func(*addition, schemas.Topology) schemas.Topology) error {
		for _, s := range some {
			a, err := unpack[addition](s.packed)
			if err != nil {
				return err
			}
			t = change(&a, t)
		}
		return nil
	}
	if whole := slices.IndexFunc(steps[at:], func(s step) bool { return !s.added }); whole >= 0 { // from there on
		if t, err = unpack[schemas.Topology](steps[at+whole].packed); err == nil {
			later := slices.Clone(steps[at : at+whole])
			slices.Reverse(later)
			err = through(later, (*addition).again)
		}
		return source, t, err
	}
	next := at - 1 // the first import after it that was no addition, and else what is brought now
	for next >= 0 && steps[next].added {
		next--
	}
	if next >= 0 {
		t, err = unpack[schemas.Topology](steps[next].before)
	} else {
		t, err = i.bringsNow(ctx, source)
	}
	if err == nil {
		err = through(steps[next+1:at], (*addition).back)
	}
	return source, t, err
}

// bringsNow is what a source brings.
func (i *Inventory) bringsNow(ctx context.Context, source string) (t schemas.Topology, err error) {
	h, err := hear(ctx, i.db, i.Snapshot())
	if err == nil {
		err = h.listen(ctx, i.db, nil, nil, true)
	}
	if err != nil {
		return t, err
	}
	for k := range h.sources {
		if h.sources[k].source == source {
			t = h.sources[k].t
		}
	}
	return t, nil
}

// writeChange notes what an import touches, for other processes.
func (i *Inventory) writeChange(ctx context.Context, tx *sql.Tx, diff *difference) error {
	touched, text := map[string]bool{}, "null"
	few := len(diff.put)+len(diff.remove) <= maxTouched
	if few {
		for _, r := range diff.put {
			touched[r.ID] = true
		}
		for _, id := range diff.remove {
			touched[id] = true
		}
		for _, l := range slices.Concat(diff.addLinks, diff.dropLinks) {
			touched[l.From] = true
		}
	}
	if few && len(touched) <= maxTouched {
		list, err := json.Marshal(append([]string{}, slices.Sorted(maps.Keys(touched))...))
		if err != nil {
			return err
		}
		text = string(list)
	}
	if _, err := tx.ExecContext(ctx, `INSERT INTO inventory_changes (version, resources) VALUES ($1,$2)`, i.stored.resources, text); err != nil {
		return fmt.Errorf("note what is changed: %w", err)
	}
	_, err := tx.ExecContext(ctx, `DELETE FROM inventory_changes WHERE version<$1`, i.stored.resources-keptChanges)
	return err
}

// keptChanges is how many changes another process may miss before it reads all.
const keptChanges = 1000

// missed returns the names of what was touched between two versions, and whether that is known.
func missed(ctx context.Context, q querier, from, to int64) (names []string, known bool, err error) {
	touched, found := map[string]bool{}, int64(0)
	known = true
	err = scanWith(ctx, q, `SELECT resources FROM inventory_changes WHERE version>$1 AND version<=$2`, []any{from, to}, func(rows *sql.Rows) error {
		var text string
		var list []string
		if err := rows.Scan(&text); err != nil {
			return err
		}
		if found++; text == "null" {
			known = false
		}
		err := unmarshal(text, &list)
		for _, id := range list {
			touched[id] = true
		}
		return err
	})
	return slices.Sorted(maps.Keys(touched)), known && found == to-from && len(touched) <= maxTouched, err
}

// caughtUp is a graph with what is stored of some resources, and of their links.
func caughtUp(ctx context.Context, q querier, g *graph, names []string) (*graph, error) {
	var put []schemas.Resource
	var remove []string
	is, had := map[string]bool{}, map[schemas.Link]bool{}
	now := map[schemas.Link]bool{}
	for some := range slices.Chunk(names, 500) {
		list, args := sqldb.In(1, some)
		err := scanWith(ctx, q, `SELECT id, kind, parent, attrs FROM inventory_resources WHERE id IN (`+list+`)`, args, func(rows *sql.Rows) error {
			r, err := scanResource(rows)
			if is[r.ID] = true; g.resource(r.ID) == nil || *g.resource(r.ID) != r {
				put = append(put, r)
			}
			return err
		})
		for _, end := range []string{"from_id", "to_id"} {
			if err == nil {
				err = scanWith(ctx, q, `SELECT from_id, to_id, kind FROM inventory_links WHERE `+end+` IN (`+list+`)`, args, func(rows *sql.Rows) error {
					var l schemas.Link
					err := rows.Scan(&l.From, &l.To, &l.Kind)
					now[l] = true
					return err
				})
			}
		}
		if err != nil {
			return nil, err
		}
	}
	for _, id := range names {
		n := g.find(id)
		if n == none {
			continue
		}
		if !is[id] {
			remove = append(remove, id)
		}
		for _, l := range g.tied(n) {
			had[g.link(l)] = true
		}
	}
	add, drop := differ(slices.Collect(maps.Keys(had)), slices.Collect(maps.Keys(now)))
	return g.with(put, remove, add, drop), nil
}
