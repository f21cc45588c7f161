// Package estate keeps servers, GPUs and pools as what people are given: their life cycle, in
// which pool they are, and what holds them back. A server or GPU is there once the inventory has
// it, and stays when it has left, since what it was given for refers to it. What it is (model,
// addresses, serial number) is the inventory's, and written in the transaction of an import.
package estate

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"auspex/internal/store/entity"
	"auspex/internal/store/sqldb"
	"auspex/schemas"
)

// What rows of the audit are about.
const (
	KindServer = "server"
	KindGPU    = "gpu"
	KindPool   = "pool"
)

// Store reads and writes the tables of migration 0090.
type Store struct {
	db  *sqldb.DB
	now func() time.Time
}

// New returns the store of a relational database whose schema is up to date.
func New(db *sqldb.DB) *Store { return &Store{db: db, now: time.Now} }

const (
	serverColumns = `s.id, s.name, s.model, s.status, s.reason, s.since_ns, s.ipmi_ip, s.redfish_url, s.management_ip, s.serial_number, p.name, s.labels,
s.hold, s.hold_by, s.present, s.created_ns, s.updated_ns, s.revision`
	fromServers = ` FROM servers s JOIN pools p ON p.id=s.pool_id`
	gpuColumns  = `g.id, g.name, g.server_id, s.name, g.model, g.status, g.reason, g.since_ns, g.memory_gb, g.serial_number, g.driver_version, g.cuda_version,
g.present, g.created_ns, g.updated_ns, g.revision`
	fromGPUs    = ` FROM gpus g JOIN servers s ON s.id=g.server_id JOIN pools p ON p.id=s.pool_id`
	poolColumns = `p.id, p.name, p.description, p.created_ns, p.updated_ns, p.revision, (SELECT count(*) FROM servers s WHERE s.pool_id=p.id)`
)

func scanServer(rows *sql.Rows) (v schemas.Server, err error) {
	var since, created, updated int64
	var labels string
	if err := rows.Scan(&v.ID, &v.Name, &v.Model, &v.Status, &v.Reason, &since, &v.IPMIIP, &v.RedfishURL, &v.ManagementIP, &v.SerialNumber, &v.Pool,
		&labels, &v.Hold, &v.HoldBy, &v.Present, &created, &updated, &v.Revision); err != nil {
		return v, err
	}
	v.Since, v.CreatedAt, v.UpdatedAt = at(since), at(created), at(updated)
	return v, json.Unmarshal([]byte(labels), &v.Labels)
}

func scanGPU(rows *sql.Rows) (v schemas.GPU, err error) {
	var since, created, updated int64
	err = rows.Scan(&v.ID, &v.Name, &v.ServerID, &v.Server, &v.Model, &v.Status, &v.Reason, &since, &v.MemoryGB, &v.SerialNumber, &v.DriverVersion,
		&v.CUDAVersion, &v.Present, &created, &updated, &v.Revision)
	v.Since, v.CreatedAt, v.UpdatedAt = at(since), at(created), at(updated)
	return v, err
}

func scanPool(rows *sql.Rows) (v schemas.Pool, err error) {
	var created, updated int64
	err = rows.Scan(&v.ID, &v.Name, &v.Description, &created, &updated, &v.Revision, &v.Servers)
	v.CreatedAt, v.UpdatedAt = at(created), at(updated)
	return v, err
}

func at(ns int64) time.Time { return time.Unix(0, ns).UTC() }

func servers(ctx context.Context, q sqldb.Queryer, where string, args ...any) ([]schemas.Server, error) {
	return sqldb.Rows(ctx, q, scanServer, `SELECT `+serverColumns+fromServers+` WHERE `+where, args...)
}

func gpus(ctx context.Context, q sqldb.Queryer, where string, args ...any) ([]schemas.GPU, error) {
	return sqldb.Rows(ctx, q, scanGPU, `SELECT `+gpuColumns+fromGPUs+` WHERE `+where, args...)
}

// Server returns the server with an id or a name.
func (s *Store) Server(ctx context.Context, ref string) (schemas.Server, error) {
	found, err := servers(ctx, s.db, `s.id=$1 OR s.name=$1`, ref)
	return entity.Only(found, err, KindServer, ref)
}

// GPU returns the GPU with an id or a name.
func (s *Store) GPU(ctx context.Context, ref string) (schemas.GPU, error) {
	return GPUOf(ctx, s.db, ref)
}

// Filter chooses of a list; what is empty asks nothing.
type Filter struct {
	Status, Pool, Model, Server string
	Label                       string // of servers: `name`, or `name=value`
	Gone                        bool   // also what has left the inventory, or is retired
	Sort                        string // "" is by name
	After                       string // cursor
	Limit                       int
}

var (
	serverOrder = sqldb.Order[schemas.Server]{
		ID: sqldb.Key[schemas.Server]{SQL: "s.id", Of: func(v *schemas.Server) any { return v.ID }}, Usual: "name",
		By: map[string]sqldb.Key[schemas.Server]{
			"name":         {SQL: "s.name", Of: func(v *schemas.Server) any { return v.Name }, Alone: true},
			"model":        {SQL: "s.model", Of: func(v *schemas.Server) any { return v.Model }},
			"status":       {SQL: "s.status", Of: func(v *schemas.Server) any { return v.Status }},
			"status_since": {SQL: "s.since_ns", Of: func(v *schemas.Server) any { return v.Since.UnixNano() }},
			"updated_at":   {SQL: "s.updated_ns", Of: func(v *schemas.Server) any { return v.UpdatedAt.UnixNano() }},
		},
	}
	gpuOrder = sqldb.Order[schemas.GPU]{
		ID: sqldb.Key[schemas.GPU]{SQL: "g.id", Of: func(v *schemas.GPU) any { return v.ID }}, Usual: "name",
		By: map[string]sqldb.Key[schemas.GPU]{
			"name":       {SQL: "g.name", Of: func(v *schemas.GPU) any { return v.Name }, Alone: true},
			"model":      {SQL: "g.model", Of: func(v *schemas.GPU) any { return v.Model }},
			"status":     {SQL: "g.status", Of: func(v *schemas.GPU) any { return v.Status }},
			"updated_at": {SQL: "g.updated_ns", Of: func(v *schemas.GPU) any { return v.UpdatedAt.UnixNano() }},
		},
	}
)

// Servers lists servers.
func (s *Store) Servers(ctx context.Context, f Filter) ([]schemas.Server, string, error) {
	w := serversWhere(&f)
	tail, args, err := serverOrder.Tail(f.Sort, f.After, f.Limit, w.args...)
	if err != nil {
		return nil, "", fmt.Errorf("list servers: %w", err)
	}
	found, err := servers(ctx, s.db, w.text.String()+tail, args...)
	if err != nil {
		return nil, "", fmt.Errorf("list servers: %w", err)
	}
	found, next := serverOrder.Page(found, f.Sort, f.Limit)
	return found, next, nil
}

// InPool returns the names of the servers in a pool, by its name.
func (s *Store) InPool(ctx context.Context, pool string) ([]string, error) {
	found, err := sqldb.Rows(ctx, s.db, func(rows *sql.Rows) (name string, err error) { return name, rows.Scan(&name) },
		`SELECT s.name FROM servers s JOIN pools p ON p.id=s.pool_id WHERE lower(p.name)=lower($1)`, pool)
	if err != nil {
		return nil, fmt.Errorf("list the servers in pool %s: %w", pool, err)
	}
	return found, nil
}

// labelled is what the labels of a server hold, as JSON, that has a label. A quote within a value
// is escaped, so that it is found nowhere else.
func labelled(label string) string {
	name, value, exact := strings.Cut(label, "=")
	text, _ := json.Marshal(map[string]string{name: value}) // strings alone: it cannot fail
	out := strings.Trim(string(text), "{}")
	if !exact {
		out = strings.TrimSuffix(out, `"`)
	}
	return out
}

// GPUs lists GPUs.
func (s *Store) GPUs(ctx context.Context, f Filter) ([]schemas.GPU, string, error) {
	w := gpusWhere(&f)
	tail, args, err := gpuOrder.Tail(f.Sort, f.After, f.Limit, w.args...)
	if err != nil {
		return nil, "", fmt.Errorf("list GPUs: %w", err)
	}
	found, err := gpus(ctx, s.db, w.text.String()+tail, args...)
	if err != nil {
		return nil, "", fmt.Errorf("list GPUs: %w", err)
	}
	found, next := gpuOrder.Page(found, f.Sort, f.Limit)
	return found, next, nil
}

// Lock makes a transaction the only one that decides of a server until it ends, and returns it
// as it is then. Whoever locks several takes them in the order of their ids.
func Lock(ctx context.Context, tx *sql.Tx, id string) (schemas.Server, error) {
	if _, err := tx.ExecContext(ctx, `UPDATE servers SET fence=fence+1 WHERE id=$1`, id); err != nil {
		return schemas.Server{}, err
	}
	found, err := servers(ctx, tx, `s.id=$1`, id)
	return entity.Only(found, err, KindServer, id)
}

// GPUOf returns the GPU with an id or a name, within a transaction.
func GPUOf(ctx context.Context, q sqldb.Queryer, ref string) (schemas.GPU, error) {
	found, err := gpus(ctx, q, `g.id=$1 OR g.name=$1`, ref)
	return entity.Only(found, err, KindGPU, ref)
}

// LockGPU locks the server of a GPU, as [Lock] does, and returns the GPU.
func LockGPU(ctx context.Context, tx *sql.Tx, id string) (v schemas.GPU, err error) {
	found, err := gpus(ctx, tx, `g.id=$1`, id)
	if v, err = entity.Only(found, err, KindGPU, id); err != nil {
		return v, err
	}
	if _, err := Lock(ctx, tx, v.ServerID); err != nil {
		return v, err
	}
	found, err = gpus(ctx, tx, `g.id=$1`, id)
	return entity.Only(found, err, KindGPU, id)
}

// MoveServer moves a locked server along its life.
func (s *Store) MoveServer(ctx context.Context, tx *sql.Tx, by string, v *schemas.Server, to, reason string) error {
	if err := schemas.ServerLife.Move(v.Status, to); err != nil {
		return err
	}
	before := *v
	now := s.now()
	v.Status, v.Reason, v.Since, v.Revision = to, reason, now.UTC(), v.Revision+1
	v.UpdatedAt = entity.Later(now, v.UpdatedAt)
	res, err := tx.ExecContext(ctx, `UPDATE servers SET status=$1, reason=$2, since_ns=$3, revision=$4, updated_ns=$5 WHERE id=$6 AND revision=$7`,
		to, reason, v.Since.UnixNano(), v.Revision, v.UpdatedAt.UnixNano(), v.ID, before.Revision)
	if err := entity.One(res, err); err != nil {
		return fmt.Errorf("move server %s: %w", v.Name, err)
	}
	return entity.Audit(ctx, tx, now, by, entity.Update, KindServer, v.Name, before, v)
}

// MoveGPU moves a GPU of a locked server along its life. The audit has the moves that are not
// an allocation's, which has its own row.
func (s *Store) MoveGPU(ctx context.Context, tx *sql.Tx, by string, v *schemas.GPU, to, reason string) error {
	if err := schemas.GPULife.Move(v.Status, to); err != nil {
		return err
	}
	before := *v
	now := s.now()
	v.Status, v.Reason, v.Since, v.Revision = to, reason, now.UTC(), v.Revision+1
	v.UpdatedAt = entity.Later(now, v.UpdatedAt)
	res, err := tx.ExecContext(ctx, `UPDATE gpus SET status=$1, reason=$2, since_ns=$3, revision=$4, updated_ns=$5 WHERE id=$6 AND revision=$7`,
		to, reason, v.Since.UnixNano(), v.Revision, v.UpdatedAt.UnixNano(), v.ID, before.Revision)
	if err := entity.One(res, err); err != nil {
		return fmt.Errorf("move GPU %s: %w", v.Name, err)
	}
	if by == "" {
		return nil
	}
	return entity.Audit(ctx, tx, now, by, entity.Update, KindGPU, v.Name, before, v)
}

// GPUsOf returns the GPUs of servers, by name.
func GPUsOf(ctx context.Context, q sqldb.Queryer, server string) ([]schemas.GPU, error) {
	return gpus(ctx, q, `g.server_id=$1 AND g.present ORDER BY g.name`, server)
}

// ErrReason is of a state that needs a reason.
var ErrReason = &entity.FieldError{Field: "status_reason", Reason: "is missing: why?"}

// UpdateServer changes what a person may of a server: its pool, labels, hold, and its state
// along its life. A revision that is not 0 is the one that the change was made of.
func (s *Store) UpdateServer(ctx context.Context, by, ref string, revision int64, change func(*schemas.Server)) (v schemas.Server, err error) {
	err = s.db.InTx(ctx, func(tx *sql.Tx) error {
		v, err = s.ChangeServer(ctx, tx, by, ref, revision, change)
		return err
	})
	if err != nil {
		return v, fmt.Errorf("update server %s: %w", ref, err)
	}
	return v, nil
}

// ChangeServer is [Store.UpdateServer] within a transaction.
func (s *Store) ChangeServer(
	ctx context.Context, tx *sql.Tx, by, ref string, revision int64, change func(*schemas.Server),
) (v schemas.Server, err error) {
	if v, err = LockServer(ctx, tx, ref); err != nil {
		return v, err
	}
	if err := entity.Check(revision, v.Revision); err != nil {
		return v, err
	}
	wanted := v
	wanted.Labels = maps.Clone(v.Labels)
	change(&wanted)
	if to := wanted.Status; to != v.Status {
		if err := schemas.ServerLife.Move(v.Status, to); err != nil {
			return v, err
		}
		if err := unworked(ctx, tx, v.ID); err != nil {
			return v, err
		}
		if v.Status == schemas.ServerReady || to == schemas.ServerRetired {
			if err := free(ctx, tx, &v, to, s.now()); err != nil {
				return v, err
			}
		}
		if err := s.MoveServer(ctx, tx, by, &v, to, wanted.Reason); err != nil { // with a row of the audit of its own
			return v, err
		}
	}
	before := v
	v.Pool, v.Hold, v.Labels = wanted.Pool, wanted.Hold, wanted.Labels
	if v.Pool == before.Pool && v.Hold == before.Hold && maps.Equal(v.Labels, before.Labels) {
		return v, nil
	}
	if v.Hold != before.Hold {
		v.HoldBy = by
		if v.Hold == "" {
			v.HoldBy = ""
		}
	}
	if err := s.put(ctx, tx, &v); err != nil {
		return v, err
	}
	return v, entity.Audit(ctx, tx, s.now(), by, entity.Update, KindServer, v.Name, before, v)
}

// Register gives a server that the transaction has brought into the inventory its pool and its
// labels, and notes who registered it.
func (s *Store) Register(ctx context.Context, tx *sql.Tx, by, name, pool string, labels map[string]string) error {
	v, err := LockServer(ctx, tx, name)
	if err != nil {
		return err
	}
	if pool != "" {
		v.Pool = pool
	}
	if labels != nil {
		v.Labels = labels
	}
	if err := s.put(ctx, tx, &v); err != nil {
		return err
	}
	return entity.Audit(ctx, tx, s.now(), by, entity.Create, KindServer, v.Name, nil, v)
}

// put writes the pool, the labels and the hold of a locked server.
func (s *Store) put(ctx context.Context, tx *sql.Tx, v *schemas.Server) error {
	found, err := pools(ctx, tx, askedPool, v.Pool)
	if err != nil {
		return err
	}
	if len(found) == 0 {
		return &entity.FieldError{Field: "pool", Value: v.Pool, Reason: "is no pool"}
	}
	labels, err := json.Marshal(v.Labels)
	if err != nil {
		return err
	}
	was := v.Revision
	v.Pool, v.Revision, v.UpdatedAt = found[0].Name, was+1, entity.Later(s.now(), v.UpdatedAt)
	res, err := tx.ExecContext(ctx, `UPDATE servers SET pool_id=$1, labels=$2, hold=$3, hold_by=$4, revision=$5, updated_ns=$6 WHERE id=$7 AND revision=$8`,
		found[0].ID, string(labels), v.Hold, v.HoldBy, v.Revision, v.UpdatedAt.UnixNano(), v.ID, was)
	return entity.One(res, err)
}

// LockServer is [Lock] of the server with an id or a name.
func LockServer(ctx context.Context, tx *sql.Tx, ref string) (v schemas.Server, err error) {
	found, err := servers(ctx, tx, `s.id=$1 OR s.name=$1`, ref)
	if v, err = entity.Only(found, err, KindServer, ref); err != nil {
		return v, err
	}
	return Lock(ctx, tx, v.ID)
}

// ChangeGPU moves a GPU, by id, as a person may: into error, with a reason, when it is
// available, and out of it again. Everything else is its allocation's, and a
// [*schemas.MoveError] that says where a person may move it.
func (s *Store) ChangeGPU(ctx context.Context, tx *sql.Tx, by, id string, to, reason string) (v schemas.GPU, err error) {
	if v, err = LockGPU(ctx, tx, id); err != nil {
		return v, err
	}
	legal := map[string][]string{schemas.GPUAvailable: {schemas.GPUError}, schemas.GPUError: {schemas.GPUAvailable}}[v.Status]
	if !slices.Contains(legal, to) {
		return v, &schemas.MoveError{Of: schemas.GPULife.Of, From: v.Status, To: to, Legal: legal}
	}
	if to == schemas.GPUError && reason == "" {
		return v, ErrReason
	}
	return v, s.MoveGPU(ctx, tx, by, &v, to, reason)
}

// What stands against a move of a server by a person.
var (
	ErrAllocated = errors.New("it is allocated")
	ErrLeased    = errors.New("it is worked on")
	ErrCase      = errors.New("it is under repair")
)

// unworked is [ErrLeased] while a workflow that runs has a server for itself and moves it along its own life.
func unworked(ctx context.Context, tx *sql.Tx, id string) error {
	var n int
	err := tx.QueryRowContext(ctx, `SELECT count(*) FROM workflows WHERE server_id=$1 AND exclusive=TRUE AND status='running'`, id).Scan(&n)
	if err == nil && n > 0 {
		err = ErrLeased
	}
	return err
}

// InWork reports whether control has an open case of a server, by its name: a repair, or what somebody asked for.
func (s *Store) InWork(ctx context.Context, server string) (bool, error) {
	var n int
	if err := s.db.QueryRowContext(ctx, `SELECT count(*) FROM control_cases WHERE subject=$1 AND state='open'`, server).Scan(&n); err != nil {
		return false, fmt.Errorf("read whether control works on %s: %w", server, err)
	}
	return n > 0, nil
}

// free is [ErrAllocated] where a claim lives on a locked server that is to move, and of one to be
// retired also [ErrLeased] or [ErrCase] where it is repaired.
func free(ctx context.Context, tx *sql.Tx, v *schemas.Server, to string, now time.Time) error {
	for _, c := range []struct {
		err   error
		query string
		args  []any
	}{
		{ErrAllocated, `SELECT count(*) FROM allocation_claims WHERE server_id=$1 AND state<>'released'`, []any{v.ID}},
		{ErrLeased, `SELECT count(*) FROM control_leases WHERE subject=$1 AND expires_ns>$2`, []any{v.Name, now.UnixNano()}},
		{ErrCase, `SELECT count(*) FROM control_cases WHERE subject=$1 AND state='open'`, []any{v.Name}},
	} {
		var n int
		if err := tx.QueryRowContext(ctx, c.query, c.args...).Scan(&n); err != nil {
			return err
		}
		if n > 0 {
			return c.err
		}
		if to != schemas.ServerRetired {
			break
		}
	}
	return nil
}

// MoveGPUs moves those GPUs of locked servers that are in a state, and tells how many that were.
func (s *Store) MoveGPUs(ctx context.Context, tx *sql.Tx, ids []string, from, to string) (int, error) {
	if err := schemas.GPULife.Move(from, to); err != nil {
		return 0, err
	}
	if len(ids) == 0 {
		return 0, nil
	}
	list, args := sqldb.In(4, ids)
	now := s.now().UnixNano()
	// The status is not to be looked up by its index, which SQLite would prefer: most GPUs are in the same.
	res, err := tx.ExecContext(ctx, `UPDATE gpus SET status=$1, reason='', since_ns=$2, revision=revision+1,
updated_ns=CASE WHEN updated_ns > $2 THEN updated_ns ELSE $2 END WHERE status || ''=$3 AND id IN (`+list+`)`, append([]any{to, now, from}, args...)...)
	if err != nil {
		return 0, fmt.Errorf("move GPUs: %w", err)
	}
	n, err := res.RowsAffected()
	return int(n), err
}

// InError returns the GPUs that are in error.
func (s *Store) InError(ctx context.Context) ([]schemas.GPU, error) {
	return gpus(ctx, s.db, `g.status='error' ORDER BY g.name`)
}

// Break moves a GPU to error, with what follows from it in the same transaction; nil is that there
// is no such GPU. One that is in error stays as it is.
func (s *Store) Break(ctx context.Context, by, name, reason string, with func(tx *sql.Tx, g *schemas.GPU) error) (g *schemas.GPU, err error) {
	err = s.db.InTx(ctx, func(tx *sql.Tx) error {
		found, err := gpus(ctx, tx, `g.name=$1`, name)
		if err != nil || len(found) == 0 {
			return err
		}
		if _, err := Lock(ctx, tx, found[0].ServerID); err != nil {
			return err
		}
		if found, err = gpus(ctx, tx, `g.name=$1`, name); err != nil || len(found) == 0 {
			return err
		}
		g = &found[0]
		if g.Status == schemas.GPUError {
			return nil
		}
		if err := s.MoveGPU(ctx, tx, by, g, schemas.GPUError, reason); err != nil {
			return err
		}
		return with(tx, g)
	})
	if err != nil {
		return nil, fmt.Errorf("move GPU %s to error: %w", name, err)
	}
	return g, nil
}
