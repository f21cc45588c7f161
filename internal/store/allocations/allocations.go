// Package allocations keeps who has which servers and GPUs, and what bounds that: quotas and
// reservations. A claim and all that allows it are one transaction, in which each server that it
// touches is locked: nothing is given twice, on either engine, whoever asks at once. Rows are
// locked in one order (quotas, pools, servers, audit), so that nobody waits for one another.
package allocations

import (
	"cmp"
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/google/uuid"

	"auspex/internal/reasons"
	"auspex/internal/store/entity"
	"auspex/internal/store/estate"
	"auspex/internal/store/sqldb"
	"auspex/schemas"
)

// What rows of the audit are about.
const (
	Kind            = "allocation"
	KindQuota       = "quota"
	KindReservation = "reservation"
)

// open is the end of what has none.
const open = math.MaxInt64

// Store reads and writes the tables of migration 0091, and moves the GPUs of claims.
type Store struct {
	db     *sqldb.DB
	estate *estate.Store
	now    func() time.Time
}

// New returns the store of a relational database whose schema is up to date.
func New(db *sqldb.DB) *Store { return &Store{db: db, estate: estate.New(db), now: time.Now} }

// Part is what is asked of one server.
type Part struct {
	Server string   // id
	GPUs   []string // ids; of a whole server none
}

// Draft is an allocation to be made.
type Draft struct {
	User, Team string // ids; a team of "" is the user alone
	Group      string
	Purpose    string
	Start, End time.Time // a zero End is open; a Start that is over is now
	Exclusive  bool      // whole servers
	Parts      []Part
	Wish       string // JSON: what was asked for
	Install    schemas.Install
}

// ConflictError is a server that cannot be given as it was to be: somebody was faster, or it is
// no longer what it was. Another choice may do.
type ConflictError struct {
	Server string // name, or id where there is none
	Why    string
}

// Error implements error.
func (e *ConflictError) Error() string {
	return reasons.Text(reasons.NotGiven, reasons.Args{"server": e.Server, "why": e.Why})
}

// Whys of conflicts.
var (
	WhyGone    = reasons.Text(reasons.IsGone, nil)
	WhyState   = reasons.Text(reasons.IsUnready, nil)
	WhyHold    = reasons.Text(reasons.IsHeld, nil)
	WhyCase    = reasons.Text(reasons.IsRepair, nil)
	WhyTaken   = reasons.Text(reasons.IsTaken, nil)
	WhyGPU     = reasons.Text(reasons.HasNoFree, nil)
	WhyNoGPU   = reasons.Text(reasons.HasNoGPU, nil)
	WhyWaiting = reasons.Text(reasons.IsUnclean, nil)
	WhyBare    = reasons.Text(reasons.IsBare, nil)
)

const columns = `a.id, a.group_id, a.user_id, u.username, COALESCE(t.name,''), a.exclusive, a.status, a.reason, a.purpose, a.start_ns, a.end_ns, a.active_ns,
a.ended_ns, a.noticed_ns, a.report, a.created_ns, a.updated_ns, a.revision, COALESCE(p.name,''), a.template_version, a.template_parameters`

const from = ` FROM allocations a JOIN users u ON u.id=a.user_id LEFT JOIN teams t ON t.id=a.team_id LEFT JOIN templates p ON p.id=a.template_id`

func at(ns int64) time.Time {
	if ns == 0 || ns == open {
		return time.Time{}
	}
	return time.Unix(0, ns).UTC()
}

func until(t time.Time) int64 {
	if t.IsZero() {
		return open
	}
	return t.UnixNano()
}

func scan(rows *sql.Rows) (a schemas.Allocation, err error) {
	var start, end, active, ended, noticed, created, updated int64
	var parameters []byte
	if err := rows.Scan(&a.ID, &a.GroupID, &a.UserID, &a.User, &a.Team, &a.Exclusive, &a.Status, &a.Reason, &a.Purpose, &start, &end, &active, &ended, &noticed,
		&a.Report, &created, &updated, &a.Revision, &a.Template, &a.TemplateVersion, &parameters); err != nil {
		return a, err
	}
	a.StartTime, a.EndTime, a.ActiveAt, a.EndedAt = at(start), at(end), at(active), at(ended)
	a.Noticed, a.CreatedAt, a.UpdatedAt = at(noticed), at(created), at(updated)
	a.ServerIDs, a.Servers, a.GPUIDs = []string{}, []string{}, []string{}
	if err = json.Unmarshal(parameters, &a.Parameters); len(a.Parameters) == 0 {
		a.Parameters = nil
	}
	return a, err
}

// list reads allocations with what they have.
func list(ctx context.Context, q sqldb.Queryer, where string, args ...any) ([]schemas.Allocation, error) {
	found, err := sqldb.Rows(ctx, q, scan, `SELECT `+columns+from+` WHERE `+where, args...)
	if err != nil || len(found) == 0 {
		return nil, err
	}
	by, ids := make(map[string]*schemas.Allocation, len(found)), make([]string, len(found))
	for i := range found {
		a := &found[i]
		a.Returned = !a.Live()
		by[a.ID], ids[i] = a, a.ID
	}
	in, some := sqldb.In(1, ids)
	type claim struct{ allocation, server, name, gpu, state string }
	claims, err := sqldb.Rows(ctx, q, func(rows *sql.Rows) (c claim, err error) {
		return c, rows.Scan(&c.allocation, &c.server, &c.name, &c.gpu, &c.state)
	}, `SELECT c.allocation_id, s.id, s.name, COALESCE(c.gpu_id,''), c.state FROM allocation_claims c JOIN servers s ON s.id=c.server_id
LEFT JOIN gpus g ON g.id=c.gpu_id WHERE c.allocation_id IN (`+in+`) ORDER BY s.name, COALESCE(g.name,'')`, some...)
	for _, c := range claims {
		a := by[c.allocation]
		if n := len(a.ServerIDs); n == 0 || a.ServerIDs[n-1] != c.server {
			a.ServerIDs, a.Servers = append(a.ServerIDs, c.server), append(a.Servers, c.name)
		}
		if c.gpu != "" {
			a.GPUIDs = append(a.GPUIDs, c.gpu)
		}
		a.ServerID = a.ServerIDs[0]
		a.Returned, a.Booked = a.Returned && c.state == schemas.ClaimReleased, a.Booked || c.state == schemas.ClaimBooked
	}
	return found, err
}

// Get returns the allocation with an id.
func (s *Store) Get(ctx context.Context, id string) (schemas.Allocation, error) {
	found, err := list(ctx, s.db, `a.id=$1`, id)
	return entity.Only(found, err, Kind, id)
}

// Filter chooses of a list; what is empty asks nothing.
type Filter struct {
	Status, User, Server string // ids
	Team                 string // id or name
	Group                string // of those that were asked for together
	Live                 bool   // pending or active
	Ended                bool   // completed or failed
	// Near is the id of a user: only theirs, and those of their teams.
	Near  string
	Sort  string // "" is the last made first
	After string // cursor
	Limit int
}

var order = sqldb.Order[schemas.Allocation]{
	ID: sqldb.Key[schemas.Allocation]{SQL: "a.id", Of: func(a *schemas.Allocation) any { return a.ID }}, Usual: "-created_at",
	By: map[string]sqldb.Key[schemas.Allocation]{
		"created_at": {SQL: "a.created_ns", Of: func(a *schemas.Allocation) any { return a.CreatedAt.UnixNano() }},
		"start_time": {SQL: "a.start_ns", Of: func(a *schemas.Allocation) any { return a.StartTime.UnixNano() }},
		"end_time":   {SQL: "a.end_ns", Of: func(a *schemas.Allocation) any { return until(a.EndTime) }},
	},
}

// List lists allocations.
func (s *Store) List(ctx context.Context, f Filter) ([]schemas.Allocation, string, error) {
	tail, args, err := order.Tail(f.Sort, f.After, f.Limit, f.Status, f.User, f.Server, f.Live, f.Near, f.Ended, f.Team, f.Group)
	if err != nil {
		return nil, "", fmt.Errorf("list allocations: %w", err)
	}
	found, err := list(ctx, s.db, `(CAST($1 AS TEXT)='' OR a.status=$1) AND (CAST($2 AS TEXT)='' OR a.user_id=$2)
AND (CAST($3 AS TEXT)='' OR EXISTS (SELECT 1 FROM allocation_claims c WHERE c.allocation_id=a.id AND c.server_id=$3))
AND (NOT $4 OR a.status IN ('pending','active'))
AND (CAST($5 AS TEXT)='' OR a.user_id=$5 OR a.team_id IN (SELECT team_id FROM team_members WHERE user_id=$5))
AND (NOT $6 OR a.status IN ('completed','failed'))
AND (CAST($7 AS TEXT)='' OR a.team_id IN (SELECT id FROM teams WHERE id=$7 OR lower(name)=lower($7)))
AND (CAST($8 AS TEXT)='' OR a.group_id=$8)`+tail, args...)
	if err != nil {
		return nil, "", fmt.Errorf("list allocations: %w", err)
	}
	page, next := order.Page(found, f.Sort, f.Limit)
	return page, next, nil
}

// Sees reports whether a user may know of an allocation: it is theirs, or of a team of theirs.
func (s *Store) Sees(ctx context.Context, user, id string) (bool, error) {
	found, err := sqldb.Rows(ctx, s.db, func(rows *sql.Rows) (n int, err error) { return n, rows.Scan(&n) },
		`SELECT 1 FROM allocations a WHERE a.id=$1 AND (a.user_id=$2 OR a.team_id IN (SELECT team_id FROM team_members WHERE user_id=$2))`, id, user)
	return len(found) > 0, err
}

// Take makes an allocation for by, all of it or nothing. What stands in its way is a
// [*ConflictError], [*QuotaError] or [*ReservedError]. One that the same request made before is
// returned as it is.
func (s *Store) Take(ctx context.Context, by string, d Draft) (schemas.Allocation, error) {
	id := sqldb.NewID(ctx)
	var a schemas.Allocation
	err := s.retry(ctx, func(ctx context.Context) error {
		return entity.Made(ctx, s.db, &a, func(q sqldb.Queryer) ([]schemas.Allocation, error) { return list(ctx, q, `a.id=$1`, id) },
			func(tx *sql.Tx) (err error) {
				if err := s.take(ctx, tx, id, d); err != nil {
					return err
				}
				found, err := list(ctx, tx, `a.id=$1`, id)
				if a, err = entity.Only(found, err, Kind, id); err != nil {
					return err
				}
				return entity.Audit(ctx, tx, s.now(), by, entity.Create, Kind, id, nil, a)
			})
	})
	if err != nil {
		return a, fmt.Errorf("allocate: %w", err)
	}
	return a, nil
}

// Made returns the allocation that the same request made before, and whether there is one: it takes room that a second look would miss.
func (s *Store) Made(ctx context.Context) (a schemas.Allocation, made bool, err error) {
	id := sqldb.RequestID(ctx)
	if id == "" {
		return a, false, nil
	}
	a, err = s.Get(ctx, id)
	if errors.Is(err, entity.ErrNone) {
		return a, false, nil
	}
	return a, err == nil, err
}

// Check reports what [Store.Take] would, and changes nothing.
func (s *Store) Check(ctx context.Context, d Draft) error {
	return s.retry(ctx, func(ctx context.Context) error {
		err := s.db.InTx(ctx, func(tx *sql.Tx) error {
			if err := s.take(ctx, tx, uuid.NewString(), d); err != nil {
				return err
			}
			return errTried
		})
		if errors.Is(err, errTried) {
			return nil
		}
		return err
	})
}

// errTried rolls back what was only tried.
var errTried = errors.New("tried")

// retry does a transaction again that PostgreSQL gave up for another one.
func (s *Store) retry(ctx context.Context, f func(context.Context) error) error {
	for {
		err := f(ctx)
		if !sqldb.Again(err) || ctx.Err() != nil {
			return err
		}
	}
}

func (s *Store) take(ctx context.Context, tx *sql.Tx, id string, d Draft) error {
	now := s.now()
	if d.Start.Before(now) {
		d.Start = now
	}
	first, last := d.Start.UnixNano(), until(d.End)
	if last <= first {
		return &entity.FieldError{Field: "end_time", Value: d.End.Format(time.RFC3339Nano), Reason: "is not after start_time"}
	}
	state := schemas.ClaimHeld
	if d.Start.After(now) {
		state = schemas.ClaimBooked
	}
	asked, err := s.bounds(ctx, tx, &d, first, last)
	if err != nil {
		return err
	}
	template, parameters, err := installed(ctx, tx, &d.Install)
	if err != nil {
		return err
	}
	if _, err := tx.ExecContext(ctx, `INSERT INTO allocations
(id, group_id, user_id, team_id, status, purpose, start_ns, end_ns, wish, exclusive, template_id, template_version, template_parameters, revision, created_ns, updated_ns)
VALUES ($1,$2,$3,$4,$5,$6,$7,$8,$9,$10,$11,$12,$13,1,$14,$14)`,
		id, d.Group, d.User, sql.NullString{String: d.Team, Valid: d.Team != ""}, schemas.AllocationPending, d.Purpose, first, last, cmp.Or(d.Wish, "{}"),
		d.Exclusive, template, d.Install.TemplateVersion, parameters, now.UnixNano()); err != nil {
		return entity.Explain(err, "allocations", func(string) string { return "" })
	}
	return s.claim(ctx, tx, id, asked, d.Exclusive, template.Valid, state, first, last)
}

// installed is what an allocation is to be installed with, as it is kept. A template that has gone since it was named is
// [entity.ErrNone].
func installed(ctx context.Context, tx *sql.Tx, in *schemas.Install) (template sql.NullString, parameters string, err error) {
	if in.Template == "" {
		return template, "{}", nil
	}
	if err := tx.QueryRowContext(ctx, `SELECT t.id FROM templates t JOIN template_versions v ON v.template_id=t.id WHERE t.name=$1 AND v.version=$2`,
		in.Template, in.TemplateVersion).Scan(&template); errors.Is(err, sql.ErrNoRows) {
		return template, "", fmt.Errorf("version %d of the template %s: %w", in.TemplateVersion, in.Template, entity.ErrNone)
	} else if err != nil {
		return template, "", err
	}
	if in.Parameters == nil {
		return template, "{}", nil
	}
	text, err := json.Marshal(in.Parameters)
	return template, string(text), err
}

// part is a part of a request with the server that it is of.
type part struct {
	Part
	pool string
}

// claim locks servers in the order of their ids and takes what was asked of them.
func (s *Store) claim(ctx context.Context, tx *sql.Tx, id string, parts []part, exclusive, installed bool, state string, first, last int64) error {
	for _, p := range parts {
		server, err := estate.Lock(ctx, tx, p.Server)
		if errors.Is(err, entity.ErrNone) {
			return &ConflictError{p.Server, WhyGone}
		} else if err != nil {
			return err
		}
		if err := blocked(ctx, tx, &server, installed); err != nil {
			return err
		}
		gpus, err := estate.GPUsOf(ctx, tx, server.ID)
		if err != nil {
			return err
		}
		units := []string{server.ID}
		if !exclusive {
			units = nil
		}
		var wanted []string
		for i := range gpus {
			g := &gpus[i]
			if !exclusive && !slices.Contains(p.GPUs, g.ID) {
				continue
			}
			if g.Status == schemas.GPUError {
				return &ConflictError{server.Name, WhyGPU}
			}
			wanted = append(wanted, g.ID)
		}
		if !exclusive && len(wanted) != len(p.GPUs) {
			return &ConflictError{server.Name, WhyNoGPU}
		}
		if err := s.vacant(ctx, tx, &server, id, exclusive, wanted, state, first, last); err != nil {
			return err
		}
		units = append(units, wanted...)
		if err := s.insert(ctx, tx, id, server.ID, units, state, first, last); err != nil {
			return err
		}
		if state != schemas.ClaimHeld {
			continue
		}
		if n, err := s.estate.MoveGPUs(ctx, tx, wanted, schemas.GPUAvailable, schemas.GPUAllocated); err != nil {
			return err
		} else if n != len(wanted) {
			return &ConflictError{server.Name, WhyGPU}
		}
	}
	return nil
}

// unfit is why a server is given to nobody, by its own record.
func unfit(v *schemas.Server) string {
	switch {
	case !v.Present:
		return WhyGone
	case v.Status != schemas.ServerReady:
		return WhyState
	case v.Hold != "":
		return WhyHold
	}
	return ""
}

// blocked is why a locked server is given to nobody, or to nobody for whom it is not installed.
func blocked(ctx context.Context, tx *sql.Tx, v *schemas.Server, installed bool) error {
	if why := unfit(v); why != "" {
		return &ConflictError{v.Name, why}
	}
	if v.Reason == WhyBare && !installed {
		return &ConflictError{v.Name, WhyBare}
	}
	var n int
	if err := tx.QueryRowContext(ctx, `SELECT count(*) FROM control_cases WHERE subject=$1 AND state='open'`, v.Name).Scan(&n); err != nil {
		return err
	}
	if n > 0 {
		return &ConflictError{v.Name, WhyCase}
	}
	return nil
}

// vacant is nil where no other claim meets the time: on the server as a whole, or on any part of
// it where it is asked for as a whole. What is held is held, also beyond its time.
func (s *Store) vacant(
	ctx context.Context, tx *sql.Tx, v *schemas.Server, id string, exclusive bool, gpus []string, state string, first, last int64,
) error {
	meet := `SELECT count(*) FROM allocation_claims WHERE server_id=$1 AND allocation_id<>$2 AND state<>'released'
AND (from_ns<$3 AND until_ns>$4 OR $5 AND state IN ('held','cleaning'))`
	args := []any{v.ID, id, last, first, state == schemas.ClaimHeld}
	if !exclusive {
		in, some := sqldb.In(6, gpus)
		meet, args = meet+` AND (gpu_id IS NULL OR gpu_id IN (`+in+`))`, append(args, some...)
	}
	var n int
	if err := tx.QueryRowContext(ctx, meet, args...).Scan(&n); err != nil {
		return err
	}
	if n > 0 {
		return &ConflictError{v.Name, WhyTaken}
	}
	return nil
}

func (s *Store) insert(ctx context.Context, tx *sql.Tx, id, server string, units []string, state string, first, last int64) error {
	if len(units) == 0 {
		return nil
	}
	var b strings.Builder
	b.WriteString(`INSERT INTO allocation_claims (allocation_id, server_id, state, from_ns, until_ns, changed_ns, unit, gpu_id) VALUES `)
	args := []any{id, server, state, first, last, s.now().UnixNano()}
	for i, u := range units {
		if i > 0 {
			b.WriteByte(',')
		}
		n := len(args)
		fmt.Fprintf(&b, `($1,$2,$3,$4,$5,$6,$%d,$%d)`, n+1, n+2)
		args = append(args, u, sql.NullString{String: u, Valid: u != server})
	}
	_, err := tx.ExecContext(ctx, b.String(), args...)
	if r, ok := sqldb.Refused(err); ok && r.Rule == sqldb.Unique && r.Constraint != "allocation_claims_id" {
		return &ConflictError{server, WhyTaken}
	}
	return err
}
