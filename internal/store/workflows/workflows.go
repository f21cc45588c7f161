// Package workflows keeps what is done to servers, step by step, and moves their life along with
// it. A process that runs one holds it for a while; after a kill another takes it up where it was.
package workflows

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	"auspex/internal/reasons"
	"auspex/internal/store/entity"
	"auspex/internal/store/estate"
	"auspex/internal/store/sqldb"
	"auspex/schemas"
)

// Kind is what rows of the audit are about.
const Kind = "workflow"

// Cancelled is the reason of one that a person or the end of its allocation stopped.
var Cancelled = reasons.Text(reasons.Cancelled, nil)

// Errors of workflows.
var (
	ErrBusy = errors.New("another workflow has the server")
	ErrLost = errors.New("another process runs it")
	ErrPast = errors.New("another workflow was made on the server since")
	ErrOf   = errors.New("it is of an allocation")
)

// Store reads and writes workflows, in the table of migration 0091.
type Store struct {
	db     *sqldb.DB
	estate *estate.Store
	now    func() time.Time
}

// New returns the store of a relational database whose schema is up to date.
func New(db *sqldb.DB) *Store { return &Store{db: db, estate: estate.New(db), now: time.Now} }

const columns = `w.id, COALESCE(w.allocation_id,''), w.server_id, s.name, w.tinkerbell_id, w.type, w.exclusive, w.status, w.reason, w.steps, w.attempt, w.created_by,
w.started_ns, w.completed_ns, w.created_ns, w.updated_ns, w.revision FROM workflows w JOIN servers s ON s.id=w.server_id`

func at(ns int64) time.Time {
	if ns == 0 {
		return time.Time{}
	}
	return time.Unix(0, ns).UTC()
}

func ns(t time.Time) int64 {
	if t.IsZero() {
		return 0
	}
	return t.UnixNano()
}

func scan(rows *sql.Rows) (w schemas.Workflow, err error) {
	var started, completed, created, updated int64
	var steps []byte
	if err := rows.Scan(&w.ID, &w.AllocationID, &w.ServerID, &w.Server, &w.TinkerbellID, &w.Type, &w.Exclusive, &w.Status, &w.Reason, &steps, &w.Attempt,
		&w.CreatedBy, &started, &completed, &created, &updated, &w.Revision); err != nil {
		return w, err
	}
	w.StartedAt, w.CompletedAt, w.CreatedAt, w.UpdatedAt = at(started), at(completed), at(created), at(updated)
	return w, json.Unmarshal(steps, &w.Steps)
}

func list(ctx context.Context, q sqldb.Queryer, where string, args ...any) ([]schemas.Workflow, error) {
	return sqldb.Rows(ctx, q, scan, `SELECT `+columns+` WHERE `+where, args...)
}

// Get returns the workflow with an id.
func (s *Store) Get(ctx context.Context, id string) (schemas.Workflow, error) {
	found, err := list(ctx, s.db, `w.id=$1`, id)
	return entity.Only(found, err, Kind, id)
}

// Moved tells how far the workflows are that run, so that two answers differ where one has moved.
func Moved(ctx context.Context, db sqldb.Queryer) ([]string, error) {
	return sqldb.Rows(ctx, db, func(rows *sql.Rows) (string, error) {
		var id string
		var updated int64
		err := rows.Scan(&id, &updated)
		return fmt.Sprint(id, " ", updated), err
	}, `SELECT id, updated_ns FROM workflows WHERE status IN ('pending','running') ORDER BY id`)
}

// Of returns the workflows of an allocation, the first made first.
func (s *Store) Of(ctx context.Context, allocation string) ([]schemas.Workflow, error) {
	return list(ctx, s.db, `w.allocation_id=$1 ORDER BY w.created_ns, w.id`, allocation)
}

// Filter chooses of a list; what is empty asks nothing.
type Filter struct {
	Status, Type, Server, Allocation string // ids
	// Near is the id of a user: only those of allocations of theirs and of their teams.
	Near  string
	Sort  string // "" is the last made first
	After string // cursor
	Limit int
}

var order = sqldb.Order[schemas.Workflow]{
	ID: sqldb.Key[schemas.Workflow]{SQL: "w.id", Of: func(w *schemas.Workflow) any { return w.ID }}, Usual: "-created_at",
	By: map[string]sqldb.Key[schemas.Workflow]{
		"created_at": {SQL: "w.created_ns", Of: func(w *schemas.Workflow) any { return w.CreatedAt.UnixNano() }},
		"updated_at": {SQL: "w.updated_ns", Of: func(w *schemas.Workflow) any { return w.UpdatedAt.UnixNano() }},
	},
}

// List lists workflows.
func (s *Store) List(ctx context.Context, f Filter) ([]schemas.Workflow, string, error) {
	tail, args, err := order.Tail(f.Sort, f.After, f.Limit, f.Status, f.Type, f.Server, f.Allocation, f.Near)
	if err != nil {
		return nil, "", fmt.Errorf("list workflows: %w", err)
	}
	found, err := list(ctx, s.db, `(CAST($1 AS TEXT)='' OR w.status=$1) AND (CAST($2 AS TEXT)='' OR w.type=$2) AND (CAST($3 AS TEXT)='' OR w.server_id=$3)
AND (CAST($4 AS TEXT)='' OR w.allocation_id=$4) AND (CAST($5 AS TEXT)='' OR w.allocation_id IN (SELECT id FROM allocations a WHERE a.user_id=$5
  OR a.team_id IN (SELECT team_id FROM team_members WHERE user_id=$5)))`+tail, args...)
	if err != nil {
		return nil, "", fmt.Errorf("list workflows: %w", err)
	}
	page, next := order.Page(found, f.Sort, f.Limit)
	return page, next, nil
}

// Create makes a workflow for by. One with its id is returned as it is. Of a server that another
// workflow has for itself it is [ErrBusy], and of one that somebody else has [estate.ErrAllocated].
func (s *Store) Create(ctx context.Context, by string, w schemas.Workflow) (schemas.Workflow, error) {
	if w.ID == "" {
		w.ID = sqldb.NewID(ctx)
	}
	id := w.ID
	err := entity.Made(ctx, s.db, &w, func(q sqldb.Queryer) ([]schemas.Workflow, error) { return list(ctx, q, `w.id=$1`, id) }, func(tx *sql.Tx) error {
		server, err := estate.Lock(ctx, tx, w.ServerID)
		if err != nil {
			return err
		}
		if w.Exclusive {
			var n int
			if err := tx.QueryRowContext(ctx, `SELECT count(*) FROM allocation_claims WHERE server_id=$1 AND state IN ('held','cleaning') AND allocation_id<>$2`,
				server.ID, w.AllocationID).Scan(&n); err != nil {
				return err
			}
			if n > 0 {
				return estate.ErrAllocated
			}
		}
		w.Server, w.Status, w.Attempt, w.CreatedBy, w.Revision = server.Name, schemas.WorkflowPending, 1, by, 1
		w.CreatedAt = s.now().UTC()
		w.UpdatedAt = w.CreatedAt
		rest(&w, false)
		steps, err := json.Marshal(w.Steps)
		if err != nil {
			return err
		}
		if _, err := tx.ExecContext(ctx, `INSERT INTO workflows
(id, allocation_id, server_id, type, exclusive, status, steps, attempt, created_by, revision, created_ns, updated_ns)
VALUES ($1,$2,$3,$4,$5,$6,$7,1,$8,1,$9,$9)`, w.ID, sql.NullString{String: w.AllocationID, Valid: w.AllocationID != ""}, w.ServerID, w.Type, w.Exclusive,
			w.Status, string(steps), by, w.CreatedAt.UnixNano()); err != nil {
			return busy(entity.Explain(err, "workflows", func(string) string { return w.Type }))
		}
		return entity.Audit(ctx, tx, s.now(), by, entity.Create, Kind, w.ID, nil, w)
	})
	if err != nil {
		return w, fmt.Errorf("create workflow on %s: %w", w.ServerID, err)
	}
	return w, nil
}

// busy tells the guard against two workflows on one server from other refusals.
func busy(err error) error {
	if field := (*entity.FieldError)(nil); errors.As(err, &field) && field.Taken && field.Field != "id" {
		return ErrBusy
	}
	return err
}

// rest makes all steps wait, but for those that are completed where it is resumed.
func rest(w *schemas.Workflow, resumed bool) {
	for i := range w.Steps {
		if resumed && w.Steps[i].Status == schemas.StepCompleted {
			continue
		}
		w.Steps[i] = schemas.WorkflowStep{Name: w.Steps[i].Name, Target: w.Steps[i].Target, With: w.Steps[i].With, Status: schemas.StepPending}
	}
}

// Due returns what nobody runs: workflows that wait, and those whose process has not held them
// for longer than it may.
func (s *Store) Due(ctx context.Context) ([]schemas.Workflow, error) {
	return list(ctx, s.db, `w.status IN ('pending','running') AND w.holder_ns<$1 ORDER BY w.created_ns, w.id`, s.now().UnixNano())
}

// Failed returns the workflows that failed since a time.
func (s *Store) Failed(ctx context.Context, since time.Time) ([]schemas.Workflow, error) {
	return list(ctx, s.db, `w.status='failed' AND w.completed_ns>=$1 ORDER BY w.completed_ns, w.id`, since.UnixNano())
}

// Hold makes a process the one that runs a workflow for a while, or goes on doing so; false is
// that another one does, or that it has ended.
func (s *Store) Hold(ctx context.Context, id, holder string, ttl time.Duration) (bool, error) {
	now := s.now()
	res, err := s.db.ExecContext(ctx, `UPDATE workflows SET holder=$1, holder_ns=$2 WHERE id=$3 AND status IN ('pending','running') AND (holder=$1 OR holder_ns<$4)`,
		holder, now.Add(ttl).UnixNano(), id, now.UnixNano())
	if err != nil {
		return false, fmt.Errorf("hold workflow %s: %w", id, err)
	}
	n, err := res.RowsAffected()
	return n == 1, err
}

// Save writes how far the steps of a running workflow are. [ErrLost] is that it runs no more, or
// elsewhere.
func (s *Store) Save(ctx context.Context, holder string, w *schemas.Workflow) error {
	steps, err := json.Marshal(w.Steps)
	if err != nil {
		return err
	}
	w.UpdatedAt = entity.Later(s.now(), w.UpdatedAt)
	res, err := s.db.ExecContext(ctx, `UPDATE workflows SET steps=$1, updated_ns=$2 WHERE id=$3 AND holder=$4 AND status=$5 AND revision=$6`,
		string(steps), w.UpdatedAt.UnixNano(), w.ID, holder, schemas.WorkflowRunning, w.Revision)
	if err = entity.One(res, err); errors.Is(err, entity.ErrChanged) {
		err = ErrLost
	}
	if err != nil {
		return fmt.Errorf("save workflow %s: %w", w.ID, err)
	}
	return nil
}

// Move moves a workflow along its life, and with it that of a server that it has for itself:
// running is provisioning, completed ready, failed error. A holder that is not "" has to run it
// still; steps that are not nil are written as they are.
func (s *Store) Move(ctx context.Context, by, holder, id, to, reason string, steps []schemas.WorkflowStep) (w schemas.Workflow, err error) {
	return s.move(ctx, by, holder, id, to, reason, steps, nil)
}

// Resume has a workflow that has failed go on at the first step that is not completed. One of an allocation is [ErrOf]; what those
// steps have seen is out of date where another workflow was made on the server since, which is [ErrPast].
func (s *Store) Resume(ctx context.Context, by, id string) (schemas.Workflow, error) {
	return s.move(ctx, by, "", id, schemas.WorkflowPending, "", nil, func(tx *sql.Tx, w *schemas.Workflow) error {
		if w.AllocationID != "" {
			return ErrOf
		}
		var n int
		err := tx.QueryRowContext(ctx, `SELECT count(*) FROM workflows WHERE server_id=$1 AND id<>$2 AND created_ns>=$3`, w.ServerID, w.ID, w.CreatedAt.UnixNano()).Scan(&n)
		if err == nil && n > 0 {
			err = ErrPast
		}
		return err
	})
}

// move is [Store.Move]; what resumes says may speak against it, and where there is one the steps that are completed stay so.
func (s *Store) move(
	ctx context.Context, by, holder, id, to, reason string, steps []schemas.WorkflowStep, resumes func(tx *sql.Tx, w *schemas.Workflow) error,
) (w schemas.Workflow, err error) {
	err = s.db.InTx(ctx, func(tx *sql.Tx) error {
		found, err := list(ctx, tx, `w.id=$1`, id)
		if w, err = entity.Only(found, err, Kind, id); err != nil {
			return err
		}
		server, err := estate.Lock(ctx, tx, w.ServerID)
		if err != nil {
			return err
		}
		found, err = list(ctx, tx, `w.id=$1`, id) // as it is while nobody else decides of the server
		if w, err = entity.Only(found, err, Kind, id); err != nil {
			return err
		}
		before := w
		if err := schemas.WorkflowLife.Move(w.Status, to); err != nil {
			return err
		}
		if resumes != nil {
			if err := resumes(tx, &w); err != nil {
				return err
			}
		}
		was, now := w.Status, s.now().UTC()
		w.Status, w.Reason = to, reason
		if steps != nil {
			w.Steps = steps
		}
		switch to {
		case schemas.WorkflowRunning:
			w.StartedAt, w.CompletedAt = now, time.Time{}
		case schemas.WorkflowPending:
			w.Attempt++
			w.StartedAt, w.CompletedAt = time.Time{}, time.Time{}
			rest(&w, resumes != nil)
		default:
			w.CompletedAt = entity.Later(now, w.StartedAt)
			skip(&w)
		}
		w.Revision++
		w.UpdatedAt = entity.Later(now, before.UpdatedAt)
		text, err := json.Marshal(w.Steps)
		if err != nil {
			return err
		}
		res, err := tx.ExecContext(ctx, `UPDATE workflows SET status=$1, reason=$2, steps=$3, attempt=$4, started_ns=$5, completed_ns=$6, revision=$7, updated_ns=$8
WHERE id=$9 AND revision=$10 AND (CAST($11 AS TEXT)='' OR holder=$11)`, w.Status, w.Reason, string(text), w.Attempt, ns(w.StartedAt), ns(w.CompletedAt),
			w.Revision, w.UpdatedAt.UnixNano(), w.ID, before.Revision, holder)
		if err := entity.One(res, err); errors.Is(err, entity.ErrChanged) {
			return ErrLost
		} else if err != nil {
			return busy(entity.Explain(err, "workflows", func(string) string { return to }))
		}
		if w.Exclusive {
			if err := s.along(ctx, tx, by, &server, was, &w); err != nil {
				return err
			}
		}
		return entity.Audit(ctx, tx, now, by, entity.Update, Kind, w.ID, before, w)
	})
	if err != nil {
		return w, fmt.Errorf("move workflow %s to %s: %w", id, to, err)
	}
	return w, nil
}

// bare is the reason of a server that is ready, and has no system.
var bare = reasons.Text(reasons.IsBare, nil)

// shows reports whether a workflow that completes has shown that its server has a system: it installs one, or waits until its GPUs are
// read.
func shows(w *schemas.Workflow) bool {
	return slices.ContainsFunc([]string{"install", "reinstall", "telemetry"}, func(name string) bool { return w.Step(name) != nil })
}

// wiped reports whether a workflow leaves its server without a system.
func wiped(w *schemas.Workflow) bool { return w.Step("wipe") != nil && !shows(w) }

// along moves the life of a server with that of the workflow that has it. One that is not where
// this workflow put it was moved by somebody else, and stays there.
func (s *Store) along(ctx context.Context, tx *sql.Tx, by string, v *schemas.Server, was string, w *schemas.Workflow) error {
	why := reasons.Text(reasons.Workflow, reasons.Args{"workflow": w.ID})
	switch {
	case w.Status == schemas.WorkflowRunning:
		if v.Reason == bare && !shows(w) {
			why = bare
		}
		return s.estate.MoveServer(ctx, tx, by, v, schemas.ServerProvisioning, why)
	case v.Status != schemas.ServerProvisioning:
		return nil
	case w.Status == schemas.WorkflowCompleted:
		why = ""
		if v.Reason == bare || wiped(w) {
			why = bare
		}
		return s.estate.MoveServer(ctx, tx, by, v, schemas.ServerReady, why)
	case w.Status == schemas.WorkflowFailed && was == schemas.WorkflowRunning:
		return s.estate.MoveServer(ctx, tx, by, v, schemas.ServerError, reasons.Text(reasons.WorkflowSo, reasons.Args{"workflow": w.ID, "why": w.Reason}))
	}
	return nil
}

// skip ends the steps that will not be done any more.
func skip(w *schemas.Workflow) {
	for i := range w.Steps {
		switch st := &w.Steps[i]; st.Status {
		case schemas.StepPending:
			st.Status = schemas.StepSkipped
		case schemas.StepRunning:
			st.Status, st.CompletedAt = schemas.StepFailed, w.CompletedAt
			if st.Message == "" {
				st.Message = w.Reason
			}
		}
	}
}
