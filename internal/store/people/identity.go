package people

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"auspex/internal/store/entity"
	"auspex/internal/store/sqldb"
	"auspex/schemas"
)

// Errors of who comes from a login service.
var (
	ErrInactive = errors.New("the user is inactive")
	ErrName     = errors.New("there is no usable name and address for the user")
	ErrOther    = errors.New("another user has this name or address")
)

// Statement is what a login service says of somebody.
type Statement struct {
	Issuer, Subject string    // who they are; a name or an address says nothing of that
	At              time.Time // when it was said
	Username, Email string    // of a user that is made; without them none is, which is [ErrName]
	Role            string
	Teams           map[string]bool // by name, whether they are of it; other teams are left as they are
}

// Known returns the user that a statement is about, made where there is none, with the role and
// the teams of the newest statement. A user who was made otherwise is never taken for the one
// of a statement, whatever its address: that is [ErrOther]. An inactive one is [ErrInactive],
// and stays as it is.
func (s *Store) Known(ctx context.Context, by string, st *Statement) (u schemas.User, err error) {
	for range 3 { // of those who come at once for the first time, one makes the user
		err = s.db.InTx(ctx, func(tx *sql.Tx) error {
			u, err = s.known(ctx, tx, by, st)
			return err
		})
		var field *entity.FieldError
		if !errors.Is(err, entity.ErrChanged) && (!errors.As(err, &field) || !field.Taken) {
			break
		}
	}
	var field *entity.FieldError
	if errors.As(err, &field) && field.Taken {
		err = fmt.Errorf("%w: %w", ErrOther, err)
	}
	if err != nil {
		return u, fmt.Errorf("user %s of %s: %w", st.Username, st.Issuer, err)
	}
	return u, nil
}

func (s *Store) known(ctx context.Context, tx *sql.Tx, by string, st *Statement) (u schemas.User, err error) {
	var id string
	var stated int64
	err = tx.QueryRowContext(ctx, `SELECT user_id, stated_ns FROM user_identities WHERE issuer=$1 AND subject=$2`, st.Issuer, st.Subject).Scan(&id, &stated)
	switch {
	case errors.Is(err, sql.ErrNoRows):
		if u, err = s.admit(ctx, tx, by, st); err != nil {
			return u, err
		}
	case err != nil:
		return u, err
	default:
		found, err := users(ctx, tx, `id=$1`, id)
		if u, err = entity.Only(found, err, "user", id); err != nil {
			return u, err
		}
		if u.Status != schemas.UserActive {
			return u, ErrInactive
		}
		if st.At.UnixNano() < stated {
			return u, nil
		}
		if st.At.UnixNano() > stated {
			if _, err := tx.ExecContext(ctx, `UPDATE user_identities SET stated_ns=$1 WHERE issuer=$2 AND subject=$3`,
				st.At.UnixNano(), st.Issuer, st.Subject); err != nil {
				return u, err
			}
		}
		if u.Role != st.Role {
			before := u
			u.Role = st.Role
			if err := s.put(ctx, tx, by, before, &u); err != nil {
				return u, err
			}
		}
	}
	for _, name := range slices.Sorted(maps.Keys(st.Teams)) {
		if err := s.seat(ctx, tx, by, name, u.Username, st.Teams[name]); err != nil {
			return u, err
		}
	}
	found, err := users(ctx, tx, `id=$1`, u.ID)
	return entity.Only(found, err, "user", u.ID)
}

// admit makes the user of a statement.
func (s *Store) admit(ctx context.Context, tx *sql.Tx, by string, st *Statement) (schemas.User, error) {
	if st.Username == "" || st.Email == "" {
		return schemas.User{}, ErrName
	}
	now := s.now().UTC()
	u := schemas.User{
		ID: sqldb.NewID(ctx), Username: st.Username, Email: st.Email, Role: st.Role, Status: schemas.UserActive,
		Revision: 1, CreatedAt: now, UpdatedAt: now, Teams: []string{},
	}
	if err := s.insert(ctx, tx, by, &u); err != nil {
		return u, err
	}
	_, err := tx.ExecContext(ctx, `INSERT INTO user_identities (issuer, subject, user_id, stated_ns, created_ns) VALUES ($1,$2,$3,$4,$5)`,
		st.Issuer, st.Subject, u.ID, st.At.UnixNano(), now.UnixNano())
	if err != nil {
		return u, entity.Explain(err, "user_identities", func(string) string { return st.Subject })
	}
	return u, nil
}

// seat has a user be of a team, or not; a team that is not there is made for its first member.
func (s *Store) seat(ctx context.Context, tx *sql.Tx, by, name, username string, member bool) error {
	found, err := teams(ctx, tx, askedTeam, name)
	if err != nil {
		return err
	}
	if len(found) == 0 {
		if !member {
			return nil
		}
		now := s.now().UTC()
		return s.found(ctx, tx, by, &schemas.Team{ID: sqldb.NewID(ctx), Name: name, Members: []string{username}, Revision: 1, CreatedAt: now, UpdatedAt: now})
	}
	at := slices.Index(found[0].Members, username)
	if (at >= 0) == member {
		return nil
	}
	return s.amend(ctx, tx, by, &found[0], func(t *schemas.Team) {
		if member {
			t.Members = append(t.Members, username)
		} else {
			t.Members = slices.Delete(t.Members, at, at+1)
		}
	})
}
