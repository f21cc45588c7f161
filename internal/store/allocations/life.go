package allocations

import (
	"context"
	"database/sql"
	"fmt"
	"time"

	"auspex/internal/notices"
	"auspex/internal/reasons"
	"auspex/internal/store/entity"
	"auspex/internal/store/estate"
	"auspex/internal/store/sqldb"
	"auspex/schemas"
)

// Cancelled is the reason of what was ended before it began.
var Cancelled = reasons.Text(reasons.Cancelled, nil)

// change runs a change of an allocation whose servers are locked, and its row of the audit.
func (s *Store) change(
	ctx context.Context, by, id string, revision int64, f func(ctx context.Context, tx *sql.Tx, a *schemas.Allocation) error,
) (a schemas.Allocation, err error) {
	err = s.retry(ctx, func(ctx context.Context) error {
		return s.db.InTx(ctx, func(tx *sql.Tx) error {
			servers, err := sqldb.Rows(ctx, tx, text, `SELECT DISTINCT server_id FROM allocation_claims WHERE allocation_id=$1 ORDER BY server_id`, id)
			if err != nil {
				return err
			}
			for _, server := range servers {
				if _, err := estate.Lock(ctx, tx, server); err != nil {
					return err
				}
			}
			found, err := list(ctx, tx, `a.id=$1`, id)
			if a, err = entity.Only(found, err, Kind, id); err != nil {
				return err
			}
			if err := entity.Check(revision, a.Revision); err != nil {
				return err
			}
			before := a
			if err := f(ctx, tx, &a); err != nil {
				return err
			}
			if same(&a, &before) {
				return nil
			}
			a.Revision++
			a.UpdatedAt = entity.Later(s.now(), before.UpdatedAt)
			res, err := tx.ExecContext(ctx, `UPDATE allocations SET status=$1, reason=$2, purpose=$3, start_ns=$4, end_ns=$5, active_ns=$6, ended_ns=$7, noticed_ns=$8,
report=$9, revision=$10, updated_ns=$11 WHERE id=$12 AND revision=$13`, a.Status, a.Reason, a.Purpose, a.StartTime.UnixNano(), until(a.EndTime), ns(a.ActiveAt),
				ns(a.EndedAt), ns(a.Noticed), a.Report, a.Revision, a.UpdatedAt.UnixNano(), a.ID, before.Revision)
			if err := entity.One(res, err); err != nil {
				return entity.Explain(err, "allocations", func(string) string { return a.EndTime.Format(time.RFC3339Nano) })
			}
			again, err := list(ctx, tx, `a.id=$1`, id)
			if a, err = entity.Only(again, err, Kind, id); err != nil {
				return err
			}
			if told := noticeOf[a.Status]; a.Status != before.Status && told != "" {
				if err := tell(ctx, tx, s.now(), told, &a, a.Reason); err != nil {
					return err
				}
			}
			return entity.Audit(ctx, tx, s.now(), by, entity.Update, Kind, id, before, a)
		})
	})
	if err != nil {
		return a, fmt.Errorf("change allocation %s: %w", id, err)
	}
	return a, nil
}

func text(rows *sql.Rows) (v string, err error) { return v, rows.Scan(&v) }

func ns(t time.Time) int64 {
	if t.IsZero() {
		return 0
	}
	return t.UnixNano()
}

func same(a, b *schemas.Allocation) bool {
	return a.Status == b.Status && a.Reason == b.Reason && a.Purpose == b.Purpose && a.StartTime.Equal(b.StartTime) && a.EndTime.Equal(b.EndTime) &&
		a.Noticed.Equal(b.Noticed) && a.Report == b.Report
}

func move(a *schemas.Allocation, to, reason string) error {
	if err := schemas.AllocationLife.Move(a.Status, to); err != nil {
		return err
	}
	a.Status, a.Reason = to, reason
	return nil
}

// claims moves the claims of an allocation, on one server where that is not "", from a state.
func (s *Store) claims(ctx context.Context, tx *sql.Tx, id, server, from, to string) error {
	_, err := tx.ExecContext(ctx, `UPDATE allocation_claims SET state=$1, changed_ns=$2 WHERE allocation_id=$3 AND state=$4 AND (CAST($5 AS TEXT)='' OR server_id=$5)`,
		to, s.now().UnixNano(), id, from, server)
	if r, ok := sqldb.Refused(err); ok && r.Rule == sqldb.Unique {
		return &ConflictError{server, WhyWaiting}
	}
	return err
}

// units are the GPUs that an allocation has, in a state of the claim, on one server where that
// is not "".
func units(ctx context.Context, tx *sql.Tx, id, server, state string) ([]string, error) {
	return sqldb.Rows(ctx, tx, text, `SELECT gpu_id FROM allocation_claims
WHERE allocation_id=$1 AND gpu_id IS NOT NULL AND state=$2 AND (CAST($3 AS TEXT)='' OR server_id=$3)`, id, state, server)
}

// Begin makes what was booked its user's, when its time has come. What is still in the way is a
// [*ConflictError].
func (s *Store) Begin(ctx context.Context, by, id string) (schemas.Allocation, error) {
	return s.change(ctx, by, id, 0, func(ctx context.Context, tx *sql.Tx, a *schemas.Allocation) error {
		if a.Status != schemas.AllocationPending {
			return schemas.AllocationLife.Move(a.Status, schemas.AllocationActive)
		}
		for _, id := range a.ServerIDs {
			v, err := estate.Lock(ctx, tx, id)
			if err != nil {
				return err
			}
			if err := blocked(ctx, tx, &v, a.Template != ""); err != nil {
				return err
			}
			gpus, err := units(ctx, tx, a.ID, id, schemas.ClaimBooked)
			if err != nil {
				return err
			}
			if err := s.claims(ctx, tx, a.ID, id, schemas.ClaimBooked, schemas.ClaimHeld); err != nil {
				return err
			}
			if n, err := s.estate.MoveGPUs(ctx, tx, gpus, schemas.GPUAvailable, schemas.GPUAllocated); err != nil {
				return err
			} else if n != len(gpus) {
				return &ConflictError{v.Name, WhyGPU}
			}
		}
		return nil
	})
}

// Activate gives an allocation to its user.
func (s *Store) Activate(ctx context.Context, by, id string) (schemas.Allocation, error) {
	return s.change(ctx, by, id, 0, func(ctx context.Context, tx *sql.Tx, a *schemas.Allocation) error {
		if err := move(a, schemas.AllocationActive, ""); err != nil {
			return err
		}
		a.ActiveAt = s.now().UTC()
		gpus, err := units(ctx, tx, a.ID, "", schemas.ClaimHeld)
		if err != nil {
			return err
		}
		if len(gpus) < len(a.GPUIDs) {
			return &ConflictError{a.Servers[0], WhyWaiting} // it is booked, and not begun
		}
		n, err := s.estate.MoveGPUs(ctx, tx, gpus, schemas.GPUAllocated, schemas.GPUInUse)
		if err == nil && n != len(gpus) {
			err = &ConflictError{a.Servers[0], WhyGPU}
		}
		return err
	})
}

// End ends an allocation as completed or failed. What it held is nobody's until it has been
// cleaned ([Store.Free]); what was only booked is free at once.
func (s *Store) End(ctx context.Context, by, id string, revision int64, to, reason, report string) (schemas.Allocation, error) {
	return s.change(ctx, by, id, revision, func(ctx context.Context, tx *sql.Tx, a *schemas.Allocation) error {
		if err := move(a, to, reason); err != nil {
			return err
		}
		a.EndedAt, a.Report = s.now().UTC(), report
		if err := s.claims(ctx, tx, a.ID, "", schemas.ClaimBooked, schemas.ClaimReleased); err != nil {
			return err
		}
		return s.claims(ctx, tx, a.ID, "", schemas.ClaimHeld, schemas.ClaimCleaning)
	})
}

// Free gives back what an allocation that has ended held of a server, once it has been cleaned.
// A GPU that is in error stays so.
func (s *Store) Free(ctx context.Context, by, id, server string) error {
	err := s.retry(ctx, func(ctx context.Context) error {
		return s.db.InTx(ctx, func(tx *sql.Tx) error {
			v, err := estate.Lock(ctx, tx, server)
			if err != nil {
				return err
			}
			if err := s.giveBack(ctx, tx, id, server); err != nil {
				return err
			}
			return entity.Audit(ctx, tx, s.now(), by, "free", Kind, id, nil, map[string]string{"server": v.Name})
		})
	})
	if err != nil {
		return fmt.Errorf("free %s of allocation %s: %w", server, id, err)
	}
	return nil
}

// Again makes a failed allocation pending, with other parts or the same: what it had has to be
// free again. It is held against quotas and reservations as a new one is.
func (s *Store) Again(ctx context.Context, by, id string, parts []Part) (schemas.Allocation, error) {
	return s.change(ctx, by, id, 0, func(ctx context.Context, tx *sql.Tx, a *schemas.Allocation) error {
		if err := move(a, schemas.AllocationPending, ""); err != nil {
			return err
		}
		if !a.Returned {
			return &ConflictError{a.Servers[0], WhyWaiting}
		}
		now := s.now().UTC()
		if a.StartTime.Before(now) {
			a.StartTime = now
		}
		var team sql.NullString
		if err := tx.QueryRowContext(ctx, `SELECT team_id FROM allocations WHERE id=$1`, id).Scan(&team); err != nil {
			return err
		}
		if _, err := tx.ExecContext(ctx, `DELETE FROM allocation_claims WHERE allocation_id=$1`, id); err != nil {
			return err
		}
		d := Draft{User: a.UserID, Team: team.String, Start: a.StartTime, End: a.EndTime, Exclusive: a.Exclusive, Parts: parts}
		first, last := a.StartTime.UnixNano(), until(a.EndTime)
		if last <= first {
			return &entity.FieldError{Field: "end_time", Value: a.EndTime.Format(time.RFC3339Nano), Reason: "is over"}
		}
		asked, err := s.bounds(ctx, tx, &d, first, last)
		if err != nil {
			return err
		}
		state := schemas.ClaimHeld
		if a.StartTime.After(now) {
			state = schemas.ClaimBooked
		}
		a.ActiveAt, a.EndedAt, a.Noticed = time.Time{}, time.Time{}, time.Time{}
		return s.claim(ctx, tx, id, asked, a.Exclusive, a.Template != "", state, first, last)
	})
}

// Change changes the purpose and the end of a live allocation. A later end is held against quotas,
// reservations and what is booked after it.
func (s *Store) Change(ctx context.Context, by, id string, revision int64, change func(*schemas.Allocation)) (schemas.Allocation, error) {
	return s.change(ctx, by, id, revision, func(ctx context.Context, tx *sql.Tx, a *schemas.Allocation) error {
		was := a.EndTime
		change(a)
		if a.EndTime.Equal(was) {
			return nil
		}
		if !a.Live() {
			return schemas.AllocationLife.Move(a.Status, a.Status)
		}
		first, last, before := a.StartTime.UnixNano(), until(a.EndTime), until(was)
		if last <= first || !a.EndTime.IsZero() && a.EndTime.Before(s.now()) {
			return &entity.FieldError{Field: "end_time", Value: a.EndTime.Format(time.RFC3339Nano), Reason: "is over, or not after the start"}
		}
		if last > before {
			if err := s.extend(ctx, tx, a, first, before, last); err != nil {
				return err
			}
		}
		_, err := tx.ExecContext(ctx, `UPDATE allocation_claims SET until_ns=$1, changed_ns=$2 WHERE allocation_id=$3 AND state IN ('booked','held')`,
			last, s.now().UnixNano(), a.ID)
		return err
	})
}

func (s *Store) extend(ctx context.Context, tx *sql.Tx, a *schemas.Allocation, first, before, last int64) error {
	var team sql.NullString
	if err := tx.QueryRowContext(ctx, `SELECT team_id FROM allocations WHERE id=$1`, a.ID).Scan(&team); err != nil {
		return err
	}
	d := Draft{User: a.UserID, Team: team.String, Exclusive: a.Exclusive}
	for _, id := range a.ServerIDs {
		p := Part{Server: id}
		gpus, err := sqldb.Rows(ctx, tx, text, `SELECT gpu_id FROM allocation_claims WHERE allocation_id=$1 AND server_id=$2 AND gpu_id IS NOT NULL`, a.ID, id)
		if err != nil {
			return err
		}
		if !a.Exclusive {
			p.GPUs = gpus
		}
		d.Parts = append(d.Parts, p)
		v := schemas.Server{ID: id, Name: id}
		// Booked by others after it: what they hold now is none of its GPUs.
		if err := s.vacant(ctx, tx, &v, a.ID, a.Exclusive, gpus, schemas.ClaimBooked, before, last); err != nil {
			return err
		}
	}
	_, asks, err := weigh(ctx, tx, &d)
	if err != nil {
		return err
	}
	if err := s.within(ctx, tx, a.UserID, team.String, a.ID, asks, first, last); err != nil {
		return err
	}
	return s.spare(ctx, tx, team.String, a.ID, asks, before, last)
}

// noticeOf is what a user is told of a state.
var noticeOf = map[string]string{
	schemas.AllocationActive: schemas.NoticeActive, schemas.AllocationFailed: schemas.NoticeFailed, schemas.AllocationCompleted: schemas.NoticeCompleted,
}

// tell writes a notice for the user of an allocation, in the transaction of what it tells.
func tell(ctx context.Context, tx *sql.Tx, now time.Time, kind string, a *schemas.Allocation, detail string) error {
	return tellIn(ctx, tx, now, kind, a, detail, spoken{})
}

// spoken is the detail of a notice beside its English text, where somebody has it so.
type spoken struct {
	Details map[string]string `json:"details,omitempty"` // by language
	Cause   *schemas.Sentence `json:"cause,omitempty"`   // the why of the detail, in pieces
}

// tellIn is tell with the detail in other languages.
func tellIn(ctx context.Context, tx *sql.Tx, now time.Time, kind string, a *schemas.Allocation, detail string, words spoken) error {
	var team sql.NullString
	if err := tx.QueryRowContext(ctx, `SELECT team_id FROM allocations WHERE id=$1`, a.ID).Scan(&team); err != nil {
		return err
	}
	return notices.Put(ctx, tx, notices.Notice{
		Type: kind, Subject: a.ID, Time: now.UTC(), User: a.UserID, Team: team.String,
		Data: struct {
			*schemas.Allocation
			Detail string `json:"detail,omitempty"`
			spoken
		}{a, detail, words},
	})
}

// On returns the live allocations that hold a server, by its name, or a part of it.
func On(ctx context.Context, q sqldb.Queryer, server string) ([]schemas.Allocation, error) {
	// Most servers that are asked for are nobody's, and are asked for often.
	some, err := sqldb.Rows(ctx, q, func(rows *sql.Rows) (n int, err error) { return n, rows.Scan(&n) },
		`SELECT 1 FROM servers s JOIN allocation_claims c ON c.server_id=s.id WHERE s.name=$1 AND c.state='held' LIMIT 1`, server)
	if err != nil || len(some) == 0 {
		return nil, err
	}
	return list(ctx, q, `a.status IN ('pending','active') AND a.id IN (SELECT c.allocation_id FROM allocation_claims c JOIN servers s ON s.id=c.server_id
WHERE s.name=$1 AND c.state='held') ORDER BY a.id`, server)
}

// On returns the live allocations that hold a server, by its name, or a part of it.
func (s *Store) On(ctx context.Context, server string) ([]schemas.Allocation, error) {
	return On(ctx, s.db, server)
}

// Tell writes a notice for whoever holds a server, or a part of it, in the transaction of what is
// done to it.
func Tell(ctx context.Context, tx *sql.Tx, now time.Time, server, kind, detail string, cause *schemas.Sentence) error {
	held, err := On(ctx, tx, server)
	for i := range held {
		if err == nil {
			err = tellIn(ctx, tx, now, kind, &held[i], detail, spoken{Cause: cause})
		}
	}
	return err
}

// Warn tells the user of an allocation that it ends soon, once for an end.
func (s *Store) Warn(ctx context.Context, a *schemas.Allocation) error {
	err := s.db.InTx(ctx, func(tx *sql.Tx) error {
		res, err := tx.ExecContext(ctx, `UPDATE allocations SET noticed_ns=$1 WHERE id=$2 AND noticed_ns<>$1`, ns(a.EndTime), a.ID)
		if err != nil {
			return err
		}
		if n, err := res.RowsAffected(); err != nil || n == 0 {
			return err
		}
		return tell(ctx, tx, s.now(), schemas.NoticeEnding, a, reasons.Text(reasons.EndsAt, reasons.Args{"at": a.EndTime.UTC().Format(time.RFC3339)}))
	})
	if err != nil {
		return fmt.Errorf("tell the end of allocation %s: %w", a.ID, err)
	}
	return nil
}

// Break moves a GPU to error, and tells whoever has it, in English and in other languages where those are
// known; false is that there is no such GPU.
func (s *Store) Break(ctx context.Context, by, name, reason, detail string, words map[string]string) (is bool, err error) {
	err = s.retry(ctx, func(ctx context.Context) error {
		g, err := s.estate.Break(ctx, by, name, reason, func(tx *sql.Tx, g *schemas.GPU) error {
			found, err := holder(ctx, tx, g.ID)
			if err != nil || len(found) == 0 {
				return err
			}
			return tellIn(ctx, tx, s.now(), schemas.NoticeDegraded, &found[0], name+": "+detail, spoken{Details: words})
		})
		is = g != nil
		return err
	})
	return is, err
}

// Note says why an allocation still waits, where that has changed.
func (s *Store) Note(ctx context.Context, id, reason string) error {
	_, err := s.db.ExecContext(ctx, `UPDATE allocations SET reason=$1 WHERE id=$2 AND status=$3 AND reason<>$1`, reason, id, schemas.AllocationPending)
	return err
}

// Pending returns the allocations that wait and whose time has come.
func (s *Store) Pending(ctx context.Context) ([]schemas.Allocation, error) {
	return list(ctx, s.db, `a.status='pending' AND a.start_ns<=$1 ORDER BY a.created_ns, a.id`, s.now().UnixNano())
}

// Ending returns the active allocations that end before a time.
func (s *Store) Ending(ctx context.Context, before time.Time) ([]schemas.Allocation, error) {
	return list(ctx, s.db, `a.status='active' AND a.end_ns<=$1 ORDER BY a.end_ns, a.id`, before.UnixNano())
}

// Return is what an allocation that has ended still holds of a server.
type Return struct {
	Allocation, Server, Name string // ids, and the name of the server
	Exclusive                bool
	EndedAt                  time.Time
}

// Cleaning returns what has to be cleaned and given back, the first to have ended first.
func (s *Store) Cleaning(ctx context.Context) ([]Return, error) {
	return sqldb.Rows(ctx, s.db, func(rows *sql.Rows) (r Return, err error) {
		var ended int64
		err = rows.Scan(&r.Allocation, &r.Server, &r.Name, &r.Exclusive, &ended)
		r.EndedAt = at(ended)
		return r, err
	}, `SELECT DISTINCT a.id, s.id, s.name, a.exclusive, a.ended_ns FROM allocation_claims c JOIN allocations a ON a.id=c.allocation_id
JOIN servers s ON s.id=c.server_id WHERE c.state='cleaning' ORDER BY a.ended_ns, a.id, s.id`)
}

// GPUs names the GPUs that an allocation has or had of a server.
func (s *Store) GPUs(ctx context.Context, id, server string) ([]string, error) {
	return sqldb.Rows(ctx, s.db, text, `SELECT g.name FROM allocation_claims c JOIN gpus g ON g.id=c.gpu_id
WHERE c.allocation_id=$1 AND c.server_id=$2 ORDER BY g.name`, id, server)
}

// Holder is the allocation that holds a GPU or a server as a whole.
func (s *Store) Holder(ctx context.Context, unit string) (a schemas.Allocation, held bool, err error) {
	found, err := holder(ctx, s.db, unit)
	if err != nil || len(found) == 0 {
		return a, false, err
	}
	return found[0], true, nil
}

func holder(ctx context.Context, q sqldb.Queryer, unit string) ([]schemas.Allocation, error) {
	return list(ctx, q, `a.status IN ('pending','active') AND a.id=(SELECT allocation_id FROM allocation_claims WHERE unit=$1 AND state='held')`, unit)
}

// Mend moves a GPU out of error: to available, and to where its allocation is where it has one.
func (s *Store) Mend(ctx context.Context, by, gpu, reason string) error {
	err := s.retry(ctx, func(ctx context.Context) error {
		return s.db.InTx(ctx, func(tx *sql.Tx) error {
			var server string
			if err := tx.QueryRowContext(ctx, `SELECT server_id FROM gpus WHERE id=$1`, gpu).Scan(&server); err != nil {
				return err
			}
			if _, err := estate.Lock(ctx, tx, server); err != nil {
				return err
			}
			all, err := estate.GPUsOf(ctx, tx, server)
			if err != nil {
				return err
			}
			for i := range all {
				g := &all[i]
				if g.ID != gpu || g.Status != schemas.GPUError {
					continue
				}
				status, err := sqldb.Rows(ctx, tx, text, `SELECT CASE WHEN a.active_ns>0 THEN 'active' ELSE 'pending' END FROM allocation_claims c
JOIN allocations a ON a.id=c.allocation_id WHERE c.unit=$1 AND c.state IN ('held','cleaning')`, gpu)
				if err != nil {
					return err
				}
				path := []string{schemas.GPUAvailable}
				if len(status) > 0 {
					path = append(path, schemas.GPUAllocated)
				}
				if len(status) > 0 && status[0] == schemas.AllocationActive {
					path = append(path, schemas.GPUInUse)
				}
				for _, to := range path {
					if err := s.estate.MoveGPU(ctx, tx, by, g, to, reason); err != nil {
						return err
					}
				}
			}
			return nil
		})
	})
	if err != nil {
		return fmt.Errorf("mend GPU %s: %w", gpu, err)
	}
	return nil
}

// Claim is a time in which a GPU, or a server as a whole, is somebody's.
type Claim struct {
	Server, GPU string // id and name; a GPU of "" is the server as a whole
	From, Until time.Time
}

// Claims returns what is somebody's or will be, of some servers by id, or of all where there are
// none. What is held is held until it is released, whatever its end.
func (s *Store) Claims(ctx context.Context, servers []string) ([]Claim, error) {
	where, args := "", []any(nil)
	if len(servers) > 0 {
		in, some := sqldb.In(2, servers)
		where, args = ` AND c.server_id IN (`+in+`)`, some
	}
	now := s.now().UnixNano()
	return sqldb.Rows(ctx, s.db, func(rows *sql.Rows) (c Claim, err error) {
		var from, to int64
		err = rows.Scan(&c.Server, &c.GPU, &from, &to)
		c.From, c.Until = at(from), at(to)
		return c, err
	}, `SELECT c.server_id, COALESCE((SELECT name FROM gpus WHERE id=c.gpu_id), ''), c.from_ns,
  CASE WHEN c.state<>'booked' AND c.until_ns<=$1 THEN 9223372036854775807 ELSE c.until_ns END
FROM allocation_claims c WHERE c.state<>'released'`+where, append([]any{now}, args...)...)
}

// Wish returns what was asked for, as JSON.
func (s *Store) Wish(ctx context.Context, id string) (string, error) {
	found, err := sqldb.Rows(ctx, s.db, text, `SELECT wish FROM allocations WHERE id=$1`, id)
	return entity.Only(found, err, Kind, id)
}

// TeamID is the id of the team of an allocation, "" for none.
func (s *Store) TeamID(ctx context.Context, id string) (string, error) {
	found, err := sqldb.Rows(ctx, s.db, text, `SELECT COALESCE(team_id,'') FROM allocations WHERE id=$1`, id)
	return entity.Only(found, err, Kind, id)
}
