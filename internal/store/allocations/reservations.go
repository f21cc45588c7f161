package allocations

import (
	"context"
	"database/sql"
	"fmt"
	"strconv"
	"time"

	"auspex/internal/store/entity"
	"auspex/internal/store/sqldb"
	"auspex/schemas"
)

const reservationColumns = `r.id, r.name, t.name, p.name, r.gpus, r.servers, r.from_ns, r.until_ns, r.created_by, r.created_ns, r.updated_ns, r.revision
FROM reservations r JOIN teams t ON t.id=r.team_id JOIN pools p ON p.id=r.pool_id`

func scanReservation(rows *sql.Rows) (r schemas.Reservation, err error) {
	var from, to, created, updated int64
	err = rows.Scan(&r.ID, &r.Name, &r.Team, &r.Pool, &r.GPUs, &r.Servers, &from, &to, &r.CreatedBy, &created, &updated, &r.Revision)
	r.StartTime, r.EndTime, r.CreatedAt, r.UpdatedAt = at(from), at(to), at(created), at(updated)
	return r, err
}

func reservations(ctx context.Context, q sqldb.Queryer, where string, args ...any) ([]schemas.Reservation, error) {
	return sqldb.Rows(ctx, q, scanReservation, `SELECT `+reservationColumns+` WHERE `+where, args...)
}

const askedReservation = `r.id=$1 OR lower(r.name)=lower($1)`

// Reservation returns the reservation with an id or a name, for a viewer: those of other teams
// are not there.
func (s *Store) Reservation(ctx context.Context, who Viewer, ref string) (schemas.Reservation, error) {
	found, err := reservations(ctx, s.db, `(`+askedReservation+`) AND ($2 OR `+teams("r.team_id", 3)+`)`, ref, who.All, who.User)
	return entity.Only(found, err, KindReservation, ref)
}

var reservationOrder = sqldb.Order[schemas.Reservation]{
	ID: sqldb.Key[schemas.Reservation]{SQL: "r.id", Of: func(r *schemas.Reservation) any { return r.ID }}, Usual: "name",
	By: map[string]sqldb.Key[schemas.Reservation]{
		"name":       {SQL: "r.name", Of: func(r *schemas.Reservation) any { return r.Name }, Fold: true, Alone: true},
		"start_time": {SQL: "r.from_ns", Of: func(r *schemas.Reservation) any { return r.StartTime.UnixNano() }},
		"end_time":   {SQL: "r.until_ns", Of: func(r *schemas.Reservation) any { return r.EndTime.UnixNano() }},
	},
}

// Reservations lists the reservations that a viewer may know of, by name where no order is asked for.
func (s *Store) Reservations(ctx context.Context, who Viewer, sort, after string, limit int) ([]schemas.Reservation, string, error) {
	tail, args, err := reservationOrder.Tail(sort, after, limit, who.All, who.User)
	if err != nil {
		return nil, "", fmt.Errorf("list reservations: %w", err)
	}
	found, err := reservations(ctx, s.db, `($1 OR `+teams("r.team_id", 2)+`)`+tail, args...)
	if err != nil {
		return nil, "", fmt.Errorf("list reservations: %w", err)
	}
	found, next := reservationOrder.Page(found, sort, limit)
	return found, next, nil
}

// PutReservation makes a reservation for by, or changes the one that is named, held against a
// revision that is not 0. It keeps what is free from then on, and takes nothing from anybody.
func (s *Store) PutReservation(ctx context.Context, by, ref string, revision int64, change func(*schemas.Reservation)) (r schemas.Reservation, err error) {
	id, verb := "", entity.Update
	if ref == "" {
		id, verb = sqldb.NewID(ctx), entity.Create
	}
	known := func(q sqldb.Queryer) ([]schemas.Reservation, error) {
		if verb == entity.Update {
			return nil, nil
		}
		return reservations(ctx, q, `r.id=$1`, id)
	}
	err = entity.Made(ctx, s.db, &r, known, func(tx *sql.Tx) error {
		var before any
		now := s.now().UTC()
		if verb == entity.Update {
			found, err := reservations(ctx, tx, askedReservation, ref)
			if r, err = entity.Only(found, err, KindReservation, ref); err != nil {
				return err
			}
			if err := entity.Check(revision, r.Revision); err != nil {
				return err
			}
			before = r
		} else {
			r = schemas.Reservation{ID: id, CreatedAt: now, CreatedBy: by}
		}
		made := r
		change(&r)
		r.ID, r.CreatedAt, r.CreatedBy = made.ID, made.CreatedAt, made.CreatedBy
		r.Revision, r.UpdatedAt = made.Revision+1, entity.Later(now, made.UpdatedAt)
		team, name, err := refer(ctx, tx, "teams", "team", r.Team)
		if err != nil {
			return err
		}
		r.Team = name
		pool, name, err := refer(ctx, tx, "pools", "pool", r.Pool)
		if err != nil {
			return err
		}
		r.Pool = name
		switch {
		case !r.EndTime.After(r.StartTime):
			return &entity.FieldError{Field: "end_time", Value: r.EndTime.Format(time.RFC3339), Reason: "is not after start_time"}
		case r.GPUs+r.Servers == 0:
			return &entity.FieldError{Field: "servers", Value: "0", Reason: "are kept, and no gpus: give one of the two"}
		}
		if _, err := tx.ExecContext(ctx, `INSERT INTO reservations (id, name, team_id, pool_id, gpus, servers, from_ns, until_ns, created_by, revision, created_ns, updated_ns)
VALUES ($1,$2,$3,$4,$5,$6,$7,$8,$9,$10,$11,$12) ON CONFLICT (id) DO UPDATE SET name=excluded.name, team_id=excluded.team_id, pool_id=excluded.pool_id,
  gpus=excluded.gpus, servers=excluded.servers, from_ns=excluded.from_ns, until_ns=excluded.until_ns, revision=excluded.revision, updated_ns=excluded.updated_ns`,
			r.ID, r.Name, team, pool, r.GPUs, r.Servers, r.StartTime.UnixNano(), r.EndTime.UnixNano(), r.CreatedBy, r.Revision, r.CreatedAt.UnixNano(),
			r.UpdatedAt.UnixNano()); err != nil {
			return entity.Explain(err, "reservations", func(field string) string {
				return map[string]string{
					"name": r.Name, "end_time": r.EndTime.Format(time.RFC3339), "gpus": strconv.FormatInt(r.GPUs, 10), "servers": strconv.FormatInt(r.Servers, 10),
				}[field]
			})
		}
		return entity.Audit(ctx, tx, now, by, verb, KindReservation, r.Name, before, r)
	})
	if err != nil {
		return r, fmt.Errorf("%s reservation %s: %w", verb, r.Name, err)
	}
	return r, nil
}

// DeleteReservation removes a reservation for by.
func (s *Store) DeleteReservation(ctx context.Context, by, ref string, revision int64) error {
	err := s.db.InTx(ctx, func(tx *sql.Tx) error {
		found, err := reservations(ctx, tx, askedReservation, ref)
		r, err := entity.Only(found, err, KindReservation, ref)
		if err != nil {
			return err
		}
		if err := entity.Check(revision, r.Revision); err != nil {
			return err
		}
		if _, err := tx.ExecContext(ctx, `DELETE FROM reservations WHERE id=$1`, r.ID); err != nil {
			return err
		}
		return entity.Audit(ctx, tx, s.now(), by, entity.Delete, KindReservation, r.Name, r, nil)
	})
	if err != nil {
		return fmt.Errorf("delete reservation %s: %w", ref, err)
	}
	return nil
}
