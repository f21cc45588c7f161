package people

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"time"

	"auspex/internal/store/entity"
	"auspex/internal/store/sqldb"
	"auspex/schemas"
)

// KindGrant is what rows of the audit about grants are about.
const KindGrant = "grant"

const grantColumns = `SELECT g.id, COALESCE(u.username, ''), COALESCE(t.name, ''), COALESCE(g.token, ''), p.name, g.role, g.created_ns
FROM grants g JOIN pools p ON p.id=g.pool_id LEFT JOIN users u ON u.id=g.user_id LEFT JOIN teams t ON t.id=g.team_id WHERE `

func grants(ctx context.Context, q sqldb.Queryer, where string, args ...any) ([]schemas.Grant, error) {
	return sqldb.Rows(ctx, q, func(rows *sql.Rows) (g schemas.Grant, err error) {
		var created int64
		err = rows.Scan(&g.ID, &g.User, &g.Team, &g.Token, &g.Pool, &g.Role, &created)
		g.CreatedAt = time.Unix(0, created).UTC()
		return g, err
	}, grantColumns+where, args...)
}

// Grants lists grants, the oldest first where no order is asked for: those of a pool, by id or name, where one is named.
func (s *Store) Grants(ctx context.Context, pool, sort, after string, limit int) ([]schemas.Grant, string, error) {
	tail, args, err := grantOrder.Tail(sort, after, limit, pool)
	if err != nil {
		return nil, "", fmt.Errorf("list grants: %w", err)
	}
	found, err := grants(ctx, s.db, `(CAST($1 AS TEXT)='' OR p.id=$1 OR lower(p.name)=lower($1))`+tail, args...)
	if err != nil {
		return nil, "", fmt.Errorf("list grants: %w", err)
	}
	found, next := grantOrder.Page(found, sort, limit)
	return found, next, nil
}

var grantOrder = sqldb.Order[schemas.Grant]{
	ID: sqldb.Key[schemas.Grant]{SQL: "g.id", Of: func(g *schemas.Grant) any { return g.ID }}, Usual: "created_at",
	By: map[string]sqldb.Key[schemas.Grant]{
		"created_at": {SQL: "g.created_ns", Of: func(g *schemas.Grant) any { return g.CreatedAt.UnixNano() }},
		"pool":       {SQL: "p.name", Of: func(g *schemas.Grant) any { return g.Pool }, Fold: true},
	},
}

// Grant returns the grant with an id.
func (s *Store) Grant(ctx context.Context, id string) (schemas.Grant, error) {
	found, err := grants(ctx, s.db, `g.id=$1`, id)
	return entity.Only(found, err, "grant", id)
}

// GrantsOf returns what was granted to a user and their teams, or to a token that is nobody's.
func (s *Store) GrantsOf(ctx context.Context, user, token string) ([]schemas.Grant, error) {
	where, who := `g.token=$1`, token
	if user != "" {
		where, who = `(g.user_id=$1 OR g.team_id IN (SELECT team_id FROM team_members WHERE user_id=$1))`, user
	}
	found, err := grants(ctx, s.db, where+` ORDER BY lower(p.name), g.id`, who)
	if err != nil {
		return nil, fmt.Errorf("list what is granted to %s: %w", who, err)
	}
	return found, nil
}

// CreateGrant makes a grant for by, to the holder that it names, in a pool by id or name. What the
// holder has in the pool already is taken.
func (s *Store) CreateGrant(ctx context.Context, by string, g schemas.Grant) (schemas.Grant, error) {
	id := sqldb.NewID(ctx)
	err := entity.Made(ctx, s.db, &g, func(q sqldb.Queryer) ([]schemas.Grant, error) { return grants(ctx, q, `g.id=$1`, id) }, func(tx *sql.Tx) error {
		if g.Role != schemas.RoleOperator && g.Role != schemas.RoleEngineer && g.Role != schemas.RoleAdmin {
			return &entity.FieldError{Field: "role", Value: g.Role, Reason: "is not one that is granted"}
		}
		var pool string
		found := func(field, ref, query string) (id sql.NullString, err error) {
			if ref == "" {
				return id, nil
			}
			err = tx.QueryRowContext(ctx, query, ref).Scan(&id)
			if errors.Is(err, sql.ErrNoRows) {
				err = &entity.FieldError{Field: field, Value: ref, Reason: "is not there"}
			}
			return id, err
		}
		user, err := found("user", g.User, `SELECT id FROM users WHERE `+askedUser)
		if err != nil {
			return err
		}
		team, err := found("team", g.Team, `SELECT id FROM teams WHERE `+askedTeam)
		if err != nil {
			return err
		}
		token, err := found("token", g.Token, `SELECT name FROM api_tokens WHERE name=$1 AND user_id IS NULL`)
		if err != nil {
			return err
		}
		in, err := found("pool", g.Pool, `SELECT id FROM pools WHERE id=$1 OR lower(name)=lower($1)`)
		if err != nil {
			return err
		}
		pool = in.String
		_, err = tx.ExecContext(ctx, `INSERT INTO grants (id, user_id, team_id, token, pool_id, role, created_ns) VALUES ($1,$2,$3,$4,$5,$6,$7)`,
			id, user, team, token, pool, g.Role, s.now().UnixNano())
		if r, ok := sqldb.Refused(err); ok && r.Rule == sqldb.Unique {
			return &entity.FieldError{Field: "pool", Value: g.Pool, Taken: true}
		} else if err != nil {
			return err
		}
		made, err := grants(ctx, tx, `g.id=$1`, id)
		if g, err = entity.Only(made, err, "grant", id); err != nil {
			return err
		}
		return entity.Audit(ctx, tx, s.now(), by, entity.Create, KindGrant, g.Pool, nil, g)
	})
	if err != nil {
		return g, fmt.Errorf("create grant: %w", err)
	}
	return g, nil
}

// DeleteGrant takes a grant back for by.
func (s *Store) DeleteGrant(ctx context.Context, by, id string) error {
	err := s.db.InTx(ctx, func(tx *sql.Tx) error {
		found, err := grants(ctx, tx, `g.id=$1`, id)
		g, err := entity.Only(found, err, "grant", id)
		if err != nil {
			return err
		}
		res, err := tx.ExecContext(ctx, `DELETE FROM grants WHERE id=$1`, id)
		if err := entity.One(res, err); err != nil {
			return err
		}
		return entity.Audit(ctx, tx, s.now(), by, entity.Delete, KindGrant, g.Pool, g, nil)
	})
	if err != nil {
		return fmt.Errorf("delete grant %s: %w", id, err)
	}
	return nil
}
