package enrol

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"auspex/internal/cmdb"
	"auspex/internal/store/audit"
	"auspex/internal/store/join"
	"auspex/internal/store/sqldb"
)

const (
	maxOpen  = 20_000               // proposals that wait
	maxDoc   = 512 << 10            // bytes of one
	keep     = 400 * 24 * time.Hour // decisions
	reopen   = 2 * time.Minute      // within it an accepted one is not seen by all processes
	maxWhy   = 500                  // characters
	kind     = "proposal"
	verbAcc  = "accept"
	verbDecl = "decline"
)

var errFull = fmt.Errorf("%d proposals wait already", maxOpen)

// Store keeps proposals and decisions, in the table of migration 0081.
type Store struct {
	db  *sqldb.DB
	now func() time.Time
}

// New returns the store of a relational database whose schema is up to date.
func New(db *sqldb.DB) *Store { return &Store{db: db, now: time.Now} }

// Offer keeps a proposal, in place of an older one of the same server, and returns its
// state. The same again is the one that is there: one that was declined stays declined.
func (s *Store) Offer(ctx context.Context, p Proposal) (state string, err error) {
	p.State, p.Time = Open, s.now().UTC()
	doc, err := json.Marshal(p)
	switch {
	case err != nil:
		return "", fmt.Errorf("keep proposal %s: %w", p.ID, err)
	case len(doc) > maxDoc:
		return "", refused("what it proposes for %s has %d bytes; at most %d are kept", p.Server, len(doc), maxDoc)
	}
	err = s.db.InTx(ctx, func(tx *sql.Tx) error {
		var decided int64
		err := tx.QueryRowContext(ctx, `SELECT state, decided_ns FROM enrol_proposals WHERE id=$1`, p.ID).Scan(&state, &decided)
		switch {
		case errors.Is(err, sql.ErrNoRows):
			state = ""
		case err != nil:
			return err
		}
		if err := settle(ctx, tx, p.subject(), p.Machine, p.ID); err != nil {
			return err
		}
		switch {
		case state == Accepted && s.now().Sub(time.Unix(0, decided)) >= reopen: // somebody has taken it back
			state = Open
			_, err := tx.ExecContext(ctx, `UPDATE enrol_proposals SET state='open', first_ns=$1, decided_ns=0, decided_by='', why='', doc=$2 WHERE id=$3`,
				p.Time.UnixNano(), string(doc), p.ID)
			return err
		case state != "":
			return nil
		}
		state = Open
		var n int
		if err := tx.QueryRowContext(ctx, `SELECT COUNT(*) FROM enrol_proposals WHERE state='open'`).Scan(&n); err != nil {
			return err
		} else if n >= maxOpen {
			return errFull
		}
		if _, err := tx.ExecContext(ctx, `DELETE FROM enrol_proposals WHERE state<>'open' AND decided_ns<$1`, s.now().Add(-keep).UnixNano()); err != nil {
			return err
		}
		_, err = tx.ExecContext(ctx, `INSERT INTO enrol_proposals (id, subject, machine, state, first_ns, doc) VALUES ($1,$2,$3,'open',$4,$5)
ON CONFLICT (id) DO NOTHING`, p.ID, p.subject(), p.Machine, p.Time.UnixNano(), string(doc))
		return err
	})
	if err != nil {
		return "", fmt.Errorf("keep proposal %s: %w", p.ID, err)
	}
	return state, nil
}

// Settle takes away what is open of a server or machine that no longer differs.
func (s *Store) Settle(ctx context.Context, p Proposal) error {
	if err := s.db.InTx(ctx, func(tx *sql.Tx) error { return settle(ctx, tx, p.subject(), p.Machine, "") }); err != nil {
		return fmt.Errorf("settle proposals of %s: %w", p.Server, err)
	}
	return nil
}

func settle(ctx context.Context, tx *sql.Tx, subject, machine, but string) error {
	_, err := tx.ExecContext(ctx, `DELETE FROM enrol_proposals WHERE state='open' AND id<>$1 AND (subject=$2 OR machine<>'' AND machine=$3)`,
		but, subject, machine)
	return err
}

const selectProposals = `SELECT state, first_ns, decided_ns, decided_by, why, doc FROM enrol_proposals`

func scanProposal(rows *sql.Rows) (p Proposal, err error) {
	var state, by, why string
	var first, decided int64
	var doc []byte
	if err := rows.Scan(&state, &first, &decided, &by, &why, &doc); err != nil {
		return p, err
	}
	err = json.Unmarshal(doc, &p)
	p.State, p.Time, p.DecidedBy, p.Why = state, time.Unix(0, first).UTC(), by, why
	if decided != 0 {
		p.Decided = time.Unix(0, decided).UTC()
	}
	return p, err
}

// List returns a page of proposals of a state, "" is all, the newest first where no order is asked
// for; next is the cursor of the following page.
func (s *Store) List(ctx context.Context, state, sort, after string, limit int) (out []Proposal, next string, err error) {
	tail, args, err := proposalOrder.Tail(sort, after, limit, state)
	if err != nil {
		return nil, "", fmt.Errorf("list proposals: %w", err)
	}
	if out, err = sqldb.Rows(ctx, s.db, scanProposal, selectProposals+` WHERE (CAST($1 AS TEXT)='' OR state=$1)`+tail, args...); err != nil {
		return nil, "", fmt.Errorf("list proposals: %w", err)
	}
	out, next = proposalOrder.Page(out, sort, limit)
	return out, next, nil
}

var proposalOrder = sqldb.Order[Proposal]{
	ID: sqldb.Key[Proposal]{SQL: "id", Of: func(p *Proposal) any { return p.ID }}, Usual: "-time",
	By: map[string]sqldb.Key[Proposal]{
		"time": {SQL: "first_ns", Of: func(p *Proposal) any { return p.Time.UnixNano() }},
	},
}

// About returns the open proposals about a server.
func (s *Store) About(ctx context.Context, server string) ([]Proposal, error) {
	out, err := sqldb.Rows(ctx, s.db, scanProposal, selectProposals+` WHERE state='open' AND subject=$1 ORDER BY id`, server)
	if err != nil {
		return nil, fmt.Errorf("list proposals of %s: %w", server, err)
	}
	return out, nil
}

// Get returns a proposal.
func (s *Store) Get(ctx context.Context, id string) (Proposal, error) {
	found, err := sqldb.Rows(ctx, s.db, scanProposal, selectProposals+` WHERE id=$1`, id)
	if err == nil && len(found) == 0 {
		err = ErrNone
	}
	if err != nil {
		return Proposal{}, fmt.Errorf("read proposal %s: %w", id, err)
	}
	return found[0], nil
}

// decide writes a decision, and its row of the audit.
func (s *Store) decide(ctx context.Context, tx *sql.Tx, p *Proposal, state, verb, by, why string) error {
	now := s.now().UTC()
	doc, err := json.Marshal(p)
	if err != nil {
		return err
	}
	res, err := tx.ExecContext(ctx, `UPDATE enrol_proposals SET state=$1, decided_ns=$2, decided_by=$3, why=$4, doc=$5 WHERE id=$6 AND state='open'`,
		state, now.UnixNano(), by, why, string(doc), p.ID)
	if err != nil {
		return err
	}
	if n, err := res.RowsAffected(); err != nil {
		return err
	} else if n == 0 {
		return ErrDecided
	}
	p.State, p.Decided, p.DecidedBy, p.Why = state, now, by, why
	where := ""
	if p.Rack != "" {
		where = ", in " + p.Rack
	}
	return audit.Append(ctx, tx, audit.Row{
		Time: now, Actor: by, Verb: verb, Subject: p.Server, Action: p.ID, Kind: kind, State: state,
		Detail: fmt.Sprintf("%d differences, %d of them conflicts%s: %s", len(p.Differences), p.Conflicts, where, why),
	})
}

var errWhy = fmt.Errorf("a reason has at most %d characters", maxWhy)

// Decline keeps a proposal, and whatever says the same, out of the inventory.
func (s *Store) Decline(ctx context.Context, id, by, why string) (Proposal, error) {
	p, err := s.Get(ctx, id)
	if err != nil {
		return p, err
	}
	if len([]rune(why)) > maxWhy {
		return p, errWhy
	}
	err = s.db.InTx(ctx, func(tx *sql.Tx) error { return s.decide(ctx, tx, &p, Declined, verbDecl, by, why) })
	if err != nil {
		return p, fmt.Errorf("decline proposal %s: %w", id, err)
	}
	return p, nil
}

// Decision is who accepts a proposal, and how far that may go.
type Decision struct {
	By, Why string
	// Rack is where the server stands, for one that the inventory has nowhere; "" leaves that open.
	Rack string
	// Told is a person who has seen the conflicts: what the agents brought before may give
	// way. Without it, a proposal with a conflict waits, and Bounds hold.
	Told   bool
	Bounds cmdb.Bounds
}

// ErrUnfit is wrapped, with what does not fit, where the inventory has changed since.
var ErrUnfit = errors.New("it does not fit the inventory any more")

// ErrWaits is wrapped by a proposal that a person has to look at.
var ErrWaits = errors.New("it contradicts the inventory: a person has to look at it")

// Accept imports a proposal. The import, the decision, and where its machine stands from
// now on are one transaction.
func (s *Store) Accept(ctx context.Context, inv *cmdb.Inventory, machines *join.Store, id string, d Decision) (Proposal, error) {
	p, err := s.Get(ctx, id)
	switch {
	case err != nil:
		return p, err
	case p.State != Open:
		return p, fmt.Errorf("accept proposal %s: %w", id, ErrDecided)
	case p.Conflicts > 0 && !d.Told:
		return p, fmt.Errorf("accept proposal %s: %w", id, ErrWaits)
	case len([]rune(d.Why)) > maxWhy:
		return p, errWhy
	}
	if d.Rack != "" {
		if err := p.put(inv.Snapshot(), d.Rack); err != nil {
			return p, fmt.Errorf("accept proposal %s: %w", id, err)
		}
	}
	o := cmdb.ImportOptions{
		Source: Source, Origin: "proposal " + id, Actor: d.By, Bounds: d.Bounds, Told: d.Told, Add: true, DryRun: true,
	}
	draft := cmdb.Draft{Topology: p.Fragment}
	r, err := inv.Import(ctx, draft, o)
	for _, problem := range r.Problems {
		if strings.Contains(problem.Record, strconv.Quote(p.Server)) || strings.Contains(problem.Record, `"`+p.Server+`/`) {
			err = errors.Join(err, fmt.Errorf("%w: %s", ErrUnfit, problem))
		}
	}
	if err != nil {
		return p, fmt.Errorf("accept proposal %s: %w", id, err)
	}
	o.DryRun = false
	o.With = func(ctx context.Context, tx *sql.Tx) error {
		// In the order of who joins: machines before the audit.
		if p.Machine != "" && machines != nil {
			if err := machines.Place(ctx, tx, p.Machine, p.Server, d.By); err != nil {
				return err
			}
		}
		return s.decide(ctx, tx, &p, Accepted, verbAcc, d.By, d.Why)
	}
	if _, err := inv.Import(ctx, draft, o); err != nil {
		return p, fmt.Errorf("accept proposal %s: %w", id, err)
	}
	return p, nil
}

// Desk is where people decide.
type Desk struct {
	*Store
	Inventory *cmdb.Inventory
	Machines  *join.Store
}

// Accept imports a proposal for a person who has seen it, and may say in which rack a
// server stands that has none; see [Store.Accept].
func (d *Desk) Accept(ctx context.Context, id, rack, by, why string) (Proposal, error) {
	return d.Store.Accept(ctx, d.Inventory, d.Machines, id, Decision{By: by, Why: why, Rack: rack, Told: true, Bounds: cmdb.NoBounds()})
}
