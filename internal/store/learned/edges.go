package learned

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	"auspex/internal/store/audit"
	"auspex/internal/store/sqldb"
	"auspex/schemas"
)

// VerbLearn is the verb of what is learned in the audit.
const VerbLearn = "learn"

// Errors of proposals.
var (
	ErrNoProposal = errors.New("there is no such proposal")
	// ErrDecided is returned for a decision that the state of a proposal does not allow, such
	// as to take back what was not accepted.
	ErrDecided = errors.New("the proposal is not in a state for that")
	// ErrNoCause is returned where a decision names a cause that its proposal does not list.
	ErrNoCause = errors.New("the proposal lists no such cause")
)

// Propose stores proposals: new ones are open, the evidence of known ones is replaced,
// but for accepted ones, which stay what a person accepted. It returns how many are new.
func (s *Store) Propose(ctx context.Context, list []schemas.EdgeProposal) (added int, err error) {
	err = s.db.InTx(ctx, func(tx *sql.Tx) error {
		added = 0
		for i := range list {
			p := list[i]
			p.State, p.Decision = schemas.EdgeOpen, nil
			doc, err := json.Marshal(&p)
			if err != nil {
				return err
			}
			var is string
			switch err := tx.QueryRowContext(ctx, `SELECT state FROM learned_edges WHERE id=$1`, p.ID).Scan(&is); {
			case errors.Is(err, sql.ErrNoRows):
				added++
				_, err = tx.ExecContext(
					ctx, `INSERT INTO learned_edges (id, state, gain, doc) VALUES ($1,$2,$3,$4)`, p.ID, schemas.EdgeOpen, p.Gain, string(doc),
				)
				if err != nil {
					return err
				}
			case err != nil:
				return err
			case is != schemas.EdgeAccepted:
				if _, err := tx.ExecContext(ctx, `UPDATE learned_edges SET gain=$2, doc=$3 WHERE id=$1`, p.ID, p.Gain, string(doc)); err != nil {
					return err
				}
			}
		}
		return nil
	})
	if err != nil {
		return 0, fmt.Errorf("store proposals: %w", err)
	}
	return added, nil
}

// Proposals returns those of a state, all where it is empty: open ones first, of these the surest.
func (s *Store) Proposals(ctx context.Context, state string) ([]schemas.EdgeProposal, error) {
	out, err := proposals(ctx, s.db, `$1='' OR state=$1`, state)
	if err != nil {
		return nil, fmt.Errorf("list proposals: %w", err)
	}
	return out, nil
}

// Proposal returns one of them.
func (s *Store) Proposal(ctx context.Context, id string) (schemas.EdgeProposal, error) {
	found, err := proposals(ctx, s.db, `id=$1`, id)
	if err == nil && len(found) == 0 {
		err = ErrNoProposal
	}
	if err != nil {
		return schemas.EdgeProposal{}, fmt.Errorf("read proposal %s: %w", id, err)
	}
	return found[0], nil
}

func proposals(ctx context.Context, q sqldb.Queryer, where string, args ...any) ([]schemas.EdgeProposal, error) {
	return sqldb.Rows(ctx, q, func(rows *sql.Rows) (p schemas.EdgeProposal, err error) {
		var state, doc string
		var decision sql.NullString
		if err := rows.Scan(&state, &doc, &decision); err != nil {
			return p, err
		}
		if err := json.Unmarshal([]byte(doc), &p); err != nil {
			return p, err
		}
		p.State = state
		if decision.Valid {
			err = json.Unmarshal([]byte(decision.String), &p.Decision)
		}
		return p, err
	}, `SELECT state, doc, (SELECT d.doc FROM learned_edge_decisions d WHERE d.id=e.id ORDER BY revision DESC LIMIT 1) FROM learned_edges e
WHERE `+where+` ORDER BY CASE state WHEN 'open' THEN 0 WHEN 'accepted' THEN 1 ELSE 2 END, gain DESC, id`, args...)
}

// Decide takes a decision of a person on a proposal, with its row of the audit, in one
// transaction. Where it changes what is accepted, next makes a version of the parameters
// from the one in force (nil: none) and the proposals that are accepted then, and that
// version is put in force.
func (s *Store) Decide(
	ctx context.Context, id string, d schemas.EdgeDecision, next func(doc []byte, accepted []schemas.EdgeProposal) ([]byte, error),
) (out schemas.EdgeProposal, err error) {
	err = s.db.InTx(ctx, func(tx *sql.Tx) error {
		// The row of the active version puts writers in a line.
		if _, err := tx.ExecContext(ctx, `UPDATE learned_active SET version=version`); err != nil {
			return err
		}
		found, err := proposals(ctx, tx, `id=$1`, id)
		if err != nil {
			return err
		}
		if len(found) == 0 {
			return ErrNoProposal
		}
		was, d := found[0].State, d
		if (d.Decision == schemas.EdgeWithdrawn) != (was == schemas.EdgeAccepted) || d.Decision == was {
			return fmt.Errorf("%w: it is %s", ErrDecided, was)
		}
		if _, err := tx.ExecContext(ctx, `UPDATE learned_edges SET state=$2 WHERE id=$1`, id, d.Decision); err != nil {
			return err
		}
		if d.Decision != schemas.EdgeDeclined {
			accepted, err := proposals(ctx, tx, `state=$1 AND id<>$2`, schemas.EdgeAccepted, id)
			if err != nil {
				return err
			}
			if d.Decision == schemas.EdgeAccepted {
				found[0].Decision = &d
				accepted = append(accepted, found[0])
			}
			if d.Version, err = s.succeed(ctx, tx, d, accepted, next); err != nil {
				return err
			}
		}
		doc, err := json.Marshal(&d)
		if err != nil {
			return err
		}
		if _, err := tx.ExecContext(ctx, `INSERT INTO learned_edge_decisions (id, revision, doc)
SELECT CAST($1 AS TEXT), COALESCE(MAX(revision),0)+1, CAST($2 AS TEXT) FROM learned_edge_decisions
WHERE id=CAST($1 AS TEXT)`, id, string(doc)); err != nil {
			return err
		}
		if err := audit.Append(ctx, tx, audit.Row{
			Time: d.Time, Actor: d.Author, Verb: VerbLearn, Action: id, Kind: "edge_" + d.Decision,
			Detail: strings.TrimSpace(fmt.Sprintf("%s > %s %s %s: %s", found[0].Cause, found[0].Effect, d.Fault, d.Way, d.Reason)),
		}); err != nil {
			return err
		}
		if found, err = proposals(ctx, tx, `id=$1`, id); err == nil {
			out = found[0]
		}
		return err
	})
	if err != nil {
		return out, fmt.Errorf("decide on proposal %s: %w", id, err)
	}
	return out, nil
}

// succeed stores what follows the version in force, and puts it in force.
func (s *Store) succeed(
	ctx context.Context, tx *sql.Tx, d schemas.EdgeDecision, accepted []schemas.EdgeProposal,
	next func(doc []byte, accepted []schemas.EdgeProposal) ([]byte, error),
) (version int64, err error) {
	var doc sql.NullString
	err = tx.QueryRowContext(
		ctx, `SELECT (SELECT doc FROM learned_parameters p WHERE p.version=a.version) FROM learned_active a`,
	).Scan(&doc)
	if err != nil {
		return 0, err
	}
	var was []byte
	if doc.Valid {
		was = []byte(doc.String)
	}
	now, err := next(was, accepted)
	if err != nil {
		return 0, err
	}
	err = tx.QueryRowContext(ctx, insertVersion, d.Time.UnixNano(), d.Author, string(now)).Scan(&version)
	if err == nil {
		_, err = tx.ExecContext(ctx, `UPDATE learned_active SET version=$1`, version)
	}
	return version, err
}

// insertVersion adds the next version of the parameters.
const insertVersion = `INSERT INTO learned_parameters (version, time_ns, author, doc)
SELECT COALESCE(MAX(version),0)+1, CAST($1 AS BIGINT), CAST($2 AS TEXT), CAST($3 AS TEXT) FROM learned_parameters RETURNING version`
