package control

import (
	"cmp"
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"auspex/control/policy"
	"auspex/internal/reasons"
	"auspex/internal/store/allocations"
	"auspex/internal/store/audit"
	"auspex/internal/store/records"
	"auspex/internal/store/sqldb"
	"auspex/schemas"
)

// States of a case.
const (
	caseOpen      = "open"
	caseDone      = "done"
	caseFailed    = "failed"
	caseCancelled = "cancelled"
	caseProposed  = "proposed" // observe and dry-run: nothing was done
	caseReading   = "reading"  // open, and changes nothing: it may stand beside another on its server
)

// climb is a ladder being climbed for one incident, or what somebody asked for
// (table control_cases).
type climb struct {
	ID         string            `json:"id"`
	Incident   string            `json:"incident"` // its id, or that of a prediction
	Subject    string            `json:"subject"`  // the server, or the resource where there is none
	Target     string            `json:"target"`   // the root cause
	Fault      string            `json:"fault"`
	Confidence float64           `json:"confidence"`
	Why        string            `json:"why"`
	Summary    *schemas.Sentence `json:"summary,omitempty"` // Why in pieces
	Policy     string            `json:"policy"`
	Ladder     []string          `json:"ladder,omitempty"` // its kinds when the case was opened; absent in those of earlier versions
	Mode       string            `json:"mode"`
	Rack       string            `json:"rack"`
	Site       string            `json:"site"`
	Evidence   time.Time         `json:"evidence"`           // the incident's last change
	Cordoned   bool              `json:"cordoned"`           // by us: only then may we undo it
	Theirs     bool              `json:"theirs,omitempty"`   // somebody asked for it to be out before us, and may still
	Touched    bool              `json:"touched"`            // a side effect was decided
	Foretold   bool              `json:"foretold,omitempty"` // of a prediction
	// Nth counts the ladders of one cause of an incident, from 0: one that ended because its cause was taken back, with
	// nothing done, has Lapsed, and makes way for the next if the cause comes again.
	Nth    int  `json:"nth,omitempty"`
	Lapsed bool `json:"lapsed,omitempty"`
	// Quarantined says that the ladder ended with the server taken out for good: a person gives it back.
	Quarantined bool      `json:"quarantined,omitempty"`
	Groups      []Group   `json:"groups,omitempty"` // what the server shares with others, and shared when it was taken
	Opened      time.Time `json:"opened"`
	Decided     time.Time `json:"decided"` // when the last side effect was decided
	State       string    `json:"state"`

	// Request is what was asked for, by a person, an allocation or a workflow; nil for an incident.
	Request *schemas.Intent `json:"request,omitempty"`

	asks, asksToDestroy bool // a step waits for a person; guarded by the controller's mutex
	yields              bool // to an incident on its server; guarded by the controller's mutex

	// Of the climb alone.
	needs     map[string]bool   // kinds of rungs that are done, or stand for
	vigil     *vigil            // listens to the part while it is repaired
	vouched   string            // who approved the step that is held now
	override  *schemas.Approval // who let it through a freeze
	signs     map[string]sign   // of alerts that were read: in which view they show the fault
	witness   string            // the alert by which our collectors saw the fault
	witnesses map[string]string // alerts that were read: by whom the fault was seen, "" by none of ours
	idle      schemas.Rail      // what the scheduler said last of what runs on the server
	asked     time.Time         // when
}

// store keeps cases, actions, leases and the audit. One writer: the controller.
type store struct {
	db     *sqldb.DB
	holder string
	now    func() time.Time
	ttl    time.Duration // of the leadership
	ends   []string      // kinds of steps that can be ended while they go on
	term   atomic.Int64  // fencing token of the leadership; 0 before, -1 after
	leases sync.Map      // our leases by subject
	writes writes
}

// reason is what a case is of: an incident, or a request.
func (c *climb) reason() string {
	switch {
	case c.Request != nil:
		return c.Request.ID
	case c.Lapsed:
		return c.Incident + " #" + strconv.Itoa(c.Nth)
	}
	return c.Incident
}

// key is the case among those that stand: one ladder a server, and beside one that
// failed what people do about it.
func (c *climb) key() string {
	if c.Request != nil {
		return c.ID
	}
	return c.Subject
}

// open says whether a case is still worked on.
func (c *climb) open() bool { return c.State == caseOpen || c.State == caseReading }

// openCase writes a new case; ok is false when the subject or the incident has one.
func (s *store) openCase(ctx context.Context, x records.Execer, c *climb) (ok bool, err error) {
	doc, err := json.Marshal(c)
	if err != nil {
		return false, err
	}
	// A claim locks its server: it is seen by the checks of this case, or sees that the case is open.
	if _, err := x.ExecContext(ctx, `UPDATE servers SET fence=fence+1 WHERE name=$1`, c.Subject); err != nil {
		return false, fmt.Errorf("lock %s: %w", c.Subject, err)
	}
	r, err := x.ExecContext(ctx, `INSERT INTO control_cases (id, reason, subject, target, state, updated_ns, doc) VALUES ($1,$2,$3,$4,$5,$6,$7) ON CONFLICT DO NOTHING`,
		c.ID, c.reason(), c.Subject, c.Target, c.State, s.now().UnixNano(), string(doc))
	if err != nil {
		return false, fmt.Errorf("open case for %s: %w", c.reason(), err)
	}
	n, err := r.RowsAffected()
	return n == 1, err
}

func (s *store) saveCase(ctx context.Context, x records.Execer, c *climb) error {
	doc, err := json.Marshal(c)
	if err != nil {
		return err
	}
	if _, err := x.ExecContext(
		ctx, `UPDATE control_cases SET state=$2, updated_ns=$3, doc=$4, reason=$5 WHERE id=$1`, c.ID, c.State, s.now().UnixNano(), string(doc), c.reason(),
	); err != nil {
		return fmt.Errorf("save case %s: %w", c.ID, err)
	}
	return nil
}

func (s *store) cases(ctx context.Context, state string) ([]*climb, error) {
	out, err := sqldb.Docs[*climb](ctx, s.db, `SELECT doc FROM control_cases WHERE state=$1 ORDER BY updated_ns`, state)
	if err != nil {
		return nil, fmt.Errorf("list cases: %w", err)
	}
	return out, nil
}

func (s *store) caseByID(ctx context.Context, id string) (*climb, error) {
	var doc string
	c := &climb{}
	err := s.db.QueryRowContext(ctx, `SELECT doc FROM control_cases WHERE id=$1`, id).Scan(&doc)
	if err == nil {
		err = json.Unmarshal([]byte(doc), c)
	}
	if err != nil {
		return nil, fmt.Errorf("read case %s: %w", id, err)
	}
	return c, nil
}

// hasCase returns the state of the case that a cause of an incident has or had, "" where there is none, and how many of
// its ladders lapsed.
func (s *store) hasCase(ctx context.Context, incident, target string) (state string, lapsed int, err error) {
	err = s.db.QueryRowContext(ctx, `SELECT state FROM control_cases WHERE reason=$1 AND target=$2`, incident, target).Scan(&state)
	for errors.Is(err, sql.ErrNoRows) {
		var one int
		err = s.db.QueryRowContext(ctx, `SELECT 1 FROM control_cases WHERE id=$1`, caseID(incident, target, lapsed)).Scan(&one)
		if errors.Is(err, sql.ErrNoRows) {
			return "", lapsed, nil
		}
		if err == nil {
			lapsed, err = lapsed+1, sql.ErrNoRows
		}
	}
	return state, lapsed, err
}

// caseID is the id of the nth ladder of a cause of an incident.
func caseID(incident, target string, nth int) string {
	if nth == 0 {
		return "case-" + schemas.EventID("control", incident, target)
	}
	return "case-" + schemas.EventID("control", incident, target, strconv.Itoa(nth))
}

// failedSince reports whether a ladder on a subject failed after a time.
func (s *store) failedSince(ctx context.Context, subject string, since time.Time) (bool, error) {
	var n int
	err := s.db.QueryRowContext(
		ctx, `SELECT count(*) FROM control_cases WHERE subject=$1 AND state=$2 AND updated_ns>=$3`, subject, caseFailed, since.UnixNano(),
	).Scan(&n)
	return n > 0, err
}

// action returns the action of a rung and attempt, if it was made.
func (s *store) action(ctx context.Context, caseID string, rung, attempt int) (a schemas.Action, found bool, err error) {
	var doc string
	var sent int64
	err = s.db.QueryRowContext(
		ctx, `SELECT doc, sent_ns FROM control_actions WHERE case_id=$1 AND rung=$2 AND attempt=$3`, caseID, rung, attempt,
	).Scan(&doc, &sent)
	if errors.Is(err, sql.ErrNoRows) {
		return a, false, nil
	}
	if err == nil {
		err = json.Unmarshal([]byte(doc), &a)
	}
	if sent > 0 { // documents of earlier versions do not say it
		a.SentAt = time.Unix(0, sent).UTC()
	}
	return a, err == nil, err
}

// saveAction writes an action's state, its case and the audit line in one
// transaction, unpublished, with what tell writes there first. intent is set once, when the side effect is decided.
func (s *store) saveAction(
	ctx context.Context, c *climb, a *schemas.Action, destructive bool, intent time.Time, actor, verb string, tell ...func(*sql.Tx) error,
) error {
	put := func(tx *sql.Tx) error {
		// One after the other: a SQLite whose disk fails ends the transaction, and what came after would be written without it.
		if err := inTurn(tx, tell); err != nil {
			return err
		}
		if err := s.keeps(ctx, tx, c, a, verb); err != nil {
			return err
		}
		if err := s.owners(ctx, tx, c, a); err != nil {
			return err
		}
		if err := s.saveCase(ctx, tx, c); err != nil {
			return err
		}
		return s.putAction(ctx, tx, c.ID, a, destructive, intent, actor, verb)
	}
	if holds(c, a, verb) || c.Request != nil && releases(a.Kind) { // they lock their server, before the audit
		return s.fenced(ctx, put)
	}
	return s.together(ctx, put)
}

// told are the states of a step of which the users of a server are told: before and after.
var told = []string{schemas.ActionWaiting, schemas.ActionRunning, schemas.ActionDone, schemas.ActionFailed, schemas.ActionUnknown}

// owners tells whoever holds a server what a repair does to it.
func (s *store) owners(ctx context.Context, tx *sql.Tx, c *climb, a *schemas.Action) error {
	r := policy.Rung{Kind: a.Kind}
	if c.Request != nil || !slices.Contains(told, a.State) || !r.EndsWhatRuns() && !takesOut(a.Kind) && !releases(a.Kind) {
		return nil
	}
	detail := reasons.Text(reasons.Repair, reasons.Args{"kind": a.Kind, "server": c.Subject, "state": a.State, "why": c.Why})
	return allocations.Tell(ctx, tx, s.now(), c.Subject, schemas.NoticeRepair, detail, c.Summary)
}

// inTurn does some parts of a transaction; one that is nil is nothing.
func inTurn(tx *sql.Tx, parts []func(*sql.Tx) error) error {
	for _, do := range parts {
		if do != nil {
			if err := do(tx); err != nil {
				return err
			}
		}
	}
	return nil
}

// saveDecision writes the state of an action that no climb holds, with the audit line and what tell writes there first.
func (s *store) saveDecision(ctx context.Context, caseID string, a *schemas.Action, actor, verb string, tell ...func(*sql.Tx) error) error {
	return s.db.InTx(ctx, func(tx *sql.Tx) error {
		if err := s.fence(ctx, tx); err != nil {
			return err
		}
		if err := inTurn(tx, tell); err != nil {
			return err
		}
		return s.putAction(ctx, tx, caseID, a, false, time.Time{}, actor, verb)
	})
}

func (s *store) putAction(
	ctx context.Context, tx *sql.Tx, caseID string, a *schemas.Action, destructive bool, intent time.Time, actor, verb string,
) error {
	a.Time = s.now().UTC()
	doc, err := json.Marshal(a)
	if err != nil {
		return err
	}
	r, err := tx.ExecContext(ctx, `INSERT INTO control_actions (id, case_id, rung, attempt, state, destructive, intent_ns, sent_ns, published, doc)
VALUES ($1,$2,$3,$4,$5,$6,$7,$8,FALSE,$9)
ON CONFLICT (id) DO UPDATE SET state=excluded.state, published=FALSE, doc=excluded.doc,
  intent_ns=CASE WHEN excluded.intent_ns > 0 THEN excluded.intent_ns ELSE control_actions.intent_ns END,
  sent_ns=CASE WHEN excluded.sent_ns > 0 THEN excluded.sent_ns ELSE control_actions.sent_ns END
WHERE excluded.intent_ns = 0 OR control_actions.intent_ns = 0`,
		a.ID, caseID, a.Rung, a.Attempt, a.State, destructive, unixNano(intent), unixNano(a.SentAt), string(doc))
	if err == nil {
		var n int64
		if n, err = r.RowsAffected(); err == nil && n == 0 {
			err = errTwice
		}
	}
	if err != nil {
		return fmt.Errorf("save action %s: %w", a.ID, err)
	}
	// What was decided is taken up when the action has ended, a trial when it was made.
	trial := ""
	if verb == verbDryRun {
		trial = verb
	}
	if _, err := tx.ExecContext(ctx, `DELETE FROM control_intents WHERE action=$1 AND (verb=$2 OR $3 NOT IN ($4,$5))`,
		a.ID, trial, a.State, schemas.ActionWaiting, schemas.ActionProposed); err != nil {
		return fmt.Errorf("delete intent for %s: %w", a.ID, err)
	}
	if !slices.Contains([]string{schemas.ActionWaiting, schemas.ActionProposed, schemas.ActionApproved}, a.State) {
		if _, err := tx.ExecContext(ctx, `DELETE FROM control_votes WHERE action=$1`, a.ID); err != nil {
			return fmt.Errorf("delete votes for %s: %w", a.ID, err)
		}
	}
	if err := records.PutActionIn(ctx, tx, *a); err != nil {
		return err
	}
	return audit.Append(ctx, tx, audit.Row{
		Time: a.Time, Actor: actor, Verb: verb, Subject: cmp.Or(a.Server, a.Target), Action: a.ID, Kind: a.Kind, State: a.State,
		Detail: a.Detail,
	})
}

// unixNano is a time as its column has it; 0 is none.
func unixNano(t time.Time) int64 {
	if t.IsZero() {
		return 0
	}
	return t.UnixNano()
}

// proposals returns the open proposals of an incident that treat another cause
// than target, with their cases.
func (s *store) proposals(ctx context.Context, incident, target string) (cs []*climb, as []schemas.Action, err error) {
	rows, err := s.db.QueryContext(ctx, `SELECT c.doc, a.doc FROM control_actions a JOIN control_cases c ON c.id = a.case_id
WHERE c.reason=$1 AND c.target<>$2 AND c.state<>'open' AND a.state=$3 ORDER BY a.rung`, incident, target, schemas.ActionProposed)
	if err != nil {
		return nil, nil, fmt.Errorf("list proposals of %s: %w", incident, err)
	}
	defer func() { _ = rows.Close() }()
	for rows.Next() {
		var cd, ad string
		if err := rows.Scan(&cd, &ad); err != nil {
			return nil, nil, err
		}
		c, a := &climb{}, schemas.Action{}
		if err := errors.Join(json.Unmarshal([]byte(cd), c), json.Unmarshal([]byte(ad), &a)); err != nil {
			return nil, nil, err
		}
		cs, as = append(cs, c), append(as, a)
	}
	return cs, as, rows.Err()
}

// proposed returns the open proposals of a case.
func (s *store) proposed(ctx context.Context, caseID string) ([]schemas.Action, error) {
	out, err := sqldb.Docs[schemas.Action](ctx, s.db, `SELECT doc FROM control_actions WHERE case_id=$1 AND state=$2 ORDER BY rung`, caseID, schemas.ActionProposed)
	if err != nil {
		return nil, fmt.Errorf("list proposals of %s: %w", caseID, err)
	}
	return out, nil
}

// unpublished is an action whose last state the bus has not acknowledged.
type unpublished struct {
	action schemas.Action
	doc    string
}

// unpublished returns the first of them.
func (s *store) unpublished(ctx context.Context, limit int) ([]unpublished, error) {
	out, err := sqldb.Rows(ctx, s.db, func(rows *sql.Rows) (u unpublished, err error) {
		if err := rows.Scan(&u.doc); err != nil {
			return u, err
		}
		return u, json.Unmarshal([]byte(u.doc), &u.action)
	}, `SELECT doc FROM control_actions WHERE published = FALSE ORDER BY id LIMIT $1`, limit)
	if err != nil {
		return nil, fmt.Errorf("list unpublished actions: %w", err)
	}
	return out, nil
}

// published notes that the bus has acknowledged actions as they are here. It is one of the writes that others may be
// committed with: beside them it could wait for their rows, and they for its.
func (s *store) published(ctx context.Context, some []unpublished) error {
	return s.together(ctx, func(tx *sql.Tx) error {
		for _, u := range some {
			if _, err := tx.ExecContext(ctx, `UPDATE control_actions SET published=TRUE WHERE id=$1 AND doc=$2`, u.action.ID, u.doc); err != nil {
				return err
			}
		}
		return nil
	})
}

// destructiveSince counts steps that ended something since a time, in the whole
// fleet and on one subject, and when the last on the subject was.
func (s *store) destructiveSince(ctx context.Context, since time.Time, subject string) (fleet int, last time.Time, err error) {
	if err = s.db.QueryRowContext(
		ctx, `SELECT count(*) FROM control_actions WHERE destructive = TRUE AND intent_ns >= $1`, since.UnixNano(),
	).Scan(&fleet); err != nil {
		return 0, last, err
	}
	var ns int64
	err = s.db.QueryRowContext(
		ctx,
		`SELECT COALESCE(MAX(a.intent_ns), 0) FROM control_actions a JOIN control_cases c ON c.id = a.case_id WHERE a.destructive = TRUE AND c.subject = $1`,
		subject,
	).Scan(&ns)
	if ns > 0 {
		last = time.Unix(0, ns)
	}
	return fleet, last, err
}

// destructiveIn returns the groups of the servers on which something was ended since a time, for each step.
func (s *store) destructiveIn(ctx context.Context, since time.Time) (steps [][]Group, err error) {
	all, err := sqldb.Docs[*climb](ctx, s.db, `SELECT c.doc FROM control_actions a JOIN control_cases c ON c.id = a.case_id
WHERE a.destructive = TRUE AND a.intent_ns >= $1`, since.UnixNano())
	for _, k := range all {
		steps = append(steps, k.Groups)
	}
	return steps, err
}

// updateLeft reports whether an update of firmware that was decided on a server since a time has not
// been seen to end.
func (s *store) updateLeft(ctx context.Context, since time.Time, subject string) (left bool, err error) {
	rows, err := s.db.QueryContext(
		ctx, `SELECT a.doc FROM control_actions a JOIN control_cases c ON c.id = a.case_id WHERE c.subject = $1 AND a.intent_ns >= $2 AND a.state IN ($3, $4, $5)`,
		subject, since.UnixNano(), schemas.ActionRunning, schemas.ActionVerifying, schemas.ActionUnknown,
	)
	if err != nil {
		return false, err
	}
	defer func() { _ = rows.Close() }()
	for rows.Next() {
		var doc string
		var a schemas.Action
		if err := rows.Scan(&doc); err != nil {
			return false, err
		}
		if err := json.Unmarshal([]byte(doc), &a); err != nil {
			return false, err
		}
		left = left || a.Kind == kindUpdate
	}
	return left, rows.Err()
}

// lease takes or renews the lease of a subject and returns its fencing token; ok
// is false while somebody else holds it.
func (s *store) lease(ctx context.Context, subject string, ttl time.Duration) (token int64, ok bool, err error) {
	now := s.now()
	if had, ours := s.leases.Load(subject); ours {
		if l := had.(lease); now.Before(l.renew) { //nolint:forcetypeassert // nothing else is kept
			return l.token, true, nil // nobody takes it before it ends
		}
	}
	token, ok, err = s.leaseIn(ctx, s.db, subject, now, ttl)
	s.leased(subject, lease{token, now.Add(ttl / 2)}, ok)
	return token, ok, err
}

// leased keeps in mind whether a lease is ours.
func (s *store) leased(subject string, l lease, ok bool) {
	if ok {
		s.leases.Store(subject, l)
	} else {
		s.leases.Delete(subject)
	}
}

// rower reads one row; a store or its transaction.
type rower interface {
	QueryRowContext(ctx context.Context, query string, args ...any) *sql.Row
}

func (s *store) leaseIn(ctx context.Context, x rower, subject string, now time.Time, ttl time.Duration) (token int64, ok bool, err error) {
	err = x.QueryRowContext(ctx, `INSERT INTO control_leases (subject, holder, token, expires_ns) VALUES ($1,$2,1,$3)
ON CONFLICT (subject) DO UPDATE SET token = CASE WHEN control_leases.holder = excluded.holder THEN control_leases.token ELSE control_leases.token + 1 END,
  holder = excluded.holder, expires_ns = excluded.expires_ns
WHERE control_leases.holder = excluded.holder OR control_leases.expires_ns < $4
RETURNING token`, subject, s.holder, now.Add(ttl).UnixNano(), now.UnixNano()).Scan(&token)
	if errors.Is(err, sql.ErrNoRows) {
		return 0, false, nil
	}
	return token, err == nil, err
}

// lease is one of ours, and when it is to be renewed.
type lease struct {
	token int64
	renew time.Time
}

func (s *store) release(ctx context.Context, subject string) error {
	s.leases.Delete(subject)
	_, err := s.db.ExecContext(ctx, `UPDATE control_leases SET expires_ns=0 WHERE subject=$1 AND holder=$2`, subject, s.holder)
	return err
}

// opened returns the cases that were opened since a time.
func (s *store) opened(ctx context.Context, since time.Time) ([]*climb, error) {
	out, err := sqldb.Docs[*climb](ctx, s.db, `SELECT doc FROM control_cases WHERE updated_ns>=$1`, since.UnixNano())
	if err != nil {
		return nil, fmt.Errorf("list cases: %w", err)
	}
	return slices.DeleteFunc(out, func(c *climb) bool { return c.Opened.Before(since) }), nil
}
