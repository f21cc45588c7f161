package join

import (
	"cmp"
	"context"
	"database/sql"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"auspex/internal/cmdb"
	"auspex/internal/store/audit"
	"auspex/internal/store/sqldb"
	"auspex/schemas"
)

// view is what the tables hold at a version, and where its machines stand by an inventory.
// The store's lock guards it.
type view struct {
	version    int64
	generation uint64
	tokens     map[string]*Token // by hash
	byName     map[string]*Token
	machines   map[string]*bound // by key
	admitted   map[string]Admission
	servers    map[string][]string  // of the inventory, by serial number and UUID
	taken      map[string]string    // key by server
	handed     map[string]Admission // a copy of admitted, for others
}

// bound is a machine as it is kept.
type bound struct {
	Bound
	revoked bool   // itself
	kept    string // the doubt that is stored
}

// says is what a machine says that decides where it stands.
type says struct{ serial, uuid, hostname, doubt string }

func (b *bound) says() says { return says{b.Serial, b.UUID, b.Hostname, b.kept} }

// merged is what is kept of a machine that is back: what it did not say before is taken
// over, what it says otherwise is a doubt.
func (b *bound) merged(m Machine) says {
	out := says{cmp.Or(b.Serial, m.Serial), cmp.Or(b.UUID, m.UUID), cmp.Or(m.Hostname, b.Hostname), ""}
	for _, f := range []struct{ name, was, is string }{{"serial number", b.Serial, m.Serial}, {"UUID", b.UUID, m.UUID}} {
		if f.was != "" && f.is != "" && normal(f.was) != normal(f.is) {
			out.doubt = fmt.Sprintf("it joined with %s %q and says %q now", f.name, f.was, f.is)
			break
		}
	}
	return out
}

// note keeps what a machine says.
func (s *Store) note(ctx context.Context, key string, is says) error {
	if _, err := s.change(ctx, func(tx *sql.Tx) ([]audit.Row, error) {
		_, err := tx.ExecContext(ctx, `UPDATE join_machines SET serial=$1, uuid=$2, hostname=$3, doubt=$4 WHERE key=$5`,
			is.serial, is.uuid, is.hostname, is.doubt, key)
		return nil, err
	}); err != nil {
		return fmt.Errorf("note what machine %s says: %w", key, err)
	}
	return nil
}

// read calls f with the view of the tables and the inventory as they are now, under the lock.
func (s *Store) read(ctx context.Context, f func(*view)) error {
	var version int64
	if err := s.db.QueryRowContext(ctx, `SELECT version FROM join_version WHERE id=1`).Scan(&version); err != nil {
		return err
	}
	var snap *cmdb.Snapshot
	var generation uint64
	if s.inv != nil {
		snap = s.inv.Snapshot()
		generation = snap.Generation
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.view == nil || s.view.version < version || s.view.generation != generation {
		v, err := s.load(ctx, snap)
		if err != nil {
			return err
		}
		s.view = v
	}
	f(s.view)
	return nil
}

// load reads the tables.
func (s *Store) load(ctx context.Context, snap *cmdb.Snapshot) (*view, error) {
	v := &view{
		tokens: map[string]*Token{}, byName: map[string]*Token{}, machines: map[string]*bound{}, admitted: map[string]Admission{},
		servers: map[string][]string{}, taken: map[string]string{},
	}
	if snap != nil {
		v.generation, v.servers = snap.Generation, identities(snap)
	}
	// The version first: what is written meanwhile is read again at the next call.
	if err := s.db.QueryRowContext(ctx, `SELECT version FROM join_version WHERE id=1`).Scan(&v.version); err != nil {
		return nil, err
	}
	tokens, err := sqldb.Rows(ctx, s.db, scanToken, selectTokens+` ORDER BY t.name`)
	if err != nil {
		return nil, err
	}
	for i := range tokens {
		v.tokens[tokens[i].hash], v.byName[tokens[i].Name] = &tokens[i], &tokens[i]
	}
	machines, err := sqldb.Rows(ctx, s.db, scanBound, selectMachines+` ORDER BY joined_ns, key`)
	if err != nil {
		return nil, err
	}
	for i := range machines {
		b := &bound{Bound: machines[i], revoked: !machines[i].Revoked.IsZero(), kept: machines[i].Doubt}
		t := v.byName[b.Token]
		b.Admitted = !b.revoked && t != nil && t.Revoked.IsZero()
		v.machines[b.Key] = b
		if b.Admitted && b.Named != "" { // the word of a person goes before what machines say
			v.taken[b.Named] = b.Key
		}
	}
	for i := range machines {
		v.stand(v.machines[machines[i].Key])
	}
	return v, nil
}

// stand finds where a machine stands beside those that joined before it.
func (v *view) stand(b *bound) {
	if !b.Admitted {
		return
	}
	b.Server = b.Named
	if b.Named == "" && b.Doubt == "" {
		server, doubt := find(v.servers, b.Serial, b.UUID)
		if by := v.taken[server]; server != "" && by != "" {
			server, doubt = "", fmt.Sprintf("machine %s is %s already", by[:16], server)
		}
		if b.Server, b.Doubt = server, doubt; server != "" {
			v.taken[server] = b.Key
		}
	}
	v.admitted[b.Key] = Admission{Token: b.Token, Server: b.Server}
	v.handed = nil
}

// grow adds a machine that has joined at a version, so that not all is read again for each
// of many.
func (s *Store) grow(version int64, m Bound) {
	s.mu.Lock()
	defer s.mu.Unlock()
	v := s.view
	if v == nil || v.version != version-1 || v.byName[m.Token] == nil || v.machines[m.Key] != nil {
		return
	}
	v.version = version
	v.byName[m.Token].Used++
	b := &bound{Bound: m}
	b.Admitted = true
	v.machines[m.Key] = b
	v.stand(b)
}

// identities are the servers of an inventory by serial number and UUID.
func identities(snap *cmdb.Snapshot) map[string][]string {
	out := map[string][]string{}
	for _, r := range snap.Resources() {
		if r.Kind != schemas.KindServer {
			continue
		}
		for _, k := range []string{schemas.AttrSerial, schemas.AttrUUID} {
			if id := k + " " + normal(r.Attrs.Get(k)); cmdb.Identifies(r.Attrs.Get(k)) && !slices.Contains(out[id], r.ID) {
				out[id] = append(out[id], r.ID)
			}
		}
	}
	return out
}

// find returns the one server with a serial number or UUID, or why it is not one.
func find(servers map[string][]string, serial, uuid string) (server, doubt string) {
	var all []string
	for _, f := range []struct{ attr, text string }{{schemas.AttrSerial, serial}, {schemas.AttrUUID, uuid}} {
		if cmdb.Identifies(f.text) {
			all = append(all, servers[f.attr+" "+normal(f.text)]...)
		}
	}
	slices.Sort(all)
	switch all = slices.Compact(all); len(all) {
	case 0:
		return "", ""
	case 1:
		return all[0], ""
	}
	return "", fmt.Sprintf("its serial number and UUID are those of %d servers: %s", len(all), strings.Join(all[:min(len(all), 5)], ", "))
}

// normal is a serial number or UUID as it is compared.
func normal(text string) string {
	return strings.ReplaceAll(strings.ToLower(strings.TrimSpace(text)), "-", "")
}

// Admitted returns who may be connected now, by key. It is cheap where nothing has changed.
func (s *Store) Admitted(ctx context.Context) (map[string]Admission, error) {
	if s.due() {
		_ = s.flush(ctx) // it waits
	}
	var out map[string]Admission
	if err := s.read(ctx, func(v *view) {
		if v.handed == nil {
			v.handed = maps.Clone(v.admitted)
		}
		out = v.handed
	}); err != nil {
		return nil, fmt.Errorf("read who has joined: %w", err)
	}
	return out, nil
}

// Placed returns the machines that stand somewhere, by their server.
func (s *Store) Placed(ctx context.Context) (map[string]Bound, error) {
	out := map[string]Bound{}
	all, err := sqldb.Rows(ctx, s.db, scanBound, selectMachines+` WHERE revoked_ns=0`)
	if err == nil {
		err = s.read(ctx, func(v *view) {
			for _, b := range all {
				if a := v.admitted[b.Key]; a.Server != "" {
					b.Server, b.Admitted = a.Server, true
					out[a.Server] = b
				}
			}
		})
	}
	if err != nil {
		return nil, fmt.Errorf("read where machines stand: %w", err)
	}
	return out, nil
}

// Place says, within a transaction, that a machine is a server, by the word of by.
func (s *Store) Place(ctx context.Context, tx *sql.Tx, key, server, by string) error {
	_, rows, err := inTurn(ctx, tx, func(tx *sql.Tx) ([]audit.Row, error) {
		res, err := tx.ExecContext(ctx, `UPDATE join_machines SET server=$1, doubt='' WHERE key=$2 AND revoked_ns=0`, server, key)
		if err := some(ErrMachine)(res, err); err != nil {
			return nil, err
		}
		rows, err := replace(ctx, tx, server, key, by, s.now())
		return append(rows, audit.Row{
			Actor: by, Verb: verbPlace, Subject: server, Kind: kindMachine, State: stateDone, Detail: "machine " + key,
		}), err
	})
	if err != nil {
		return fmt.Errorf("place machine %s: %w", key, err)
	}
	return s.tell(ctx, tx, rows)
}

// Bound is a machine that has joined.
type Bound struct {
	Machine
	Token     string
	Named     string // which server it is by the word of a person
	Server    string // which it is at all
	Doubt     string // why it stands nowhere, where that has to be told
	Joined    time.Time
	Seen      time.Time
	Revoked   time.Time // itself
	RevokedBy string
	Admitted  bool // neither it nor its token is revoked
}
