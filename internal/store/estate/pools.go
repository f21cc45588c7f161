package estate

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"strings"

	"auspex/internal/store/entity"
	"auspex/internal/store/sqldb"
	"auspex/schemas"
)

// ErrDefault is of the pool that has to be there.
var ErrDefault = errors.New("it is the pool of what is in no other")

func pools(ctx context.Context, q sqldb.Queryer, where string, args ...any) ([]schemas.Pool, error) {
	return sqldb.Rows(ctx, q, scanPool, `SELECT `+poolColumns+` FROM pools p WHERE `+where, args...)
}

const askedPool = `p.id=$1 OR lower(p.name)=lower($1)`

// Pool returns the pool with an id or a name.
func (s *Store) Pool(ctx context.Context, ref string) (schemas.Pool, error) {
	return pool(ctx, s.db, ref)
}

func pool(ctx context.Context, q sqldb.Queryer, ref string) (schemas.Pool, error) {
	found, err := pools(ctx, q, askedPool, ref)
	return entity.Only(found, err, KindPool, ref)
}

var poolOrder = sqldb.Order[schemas.Pool]{
	ID: sqldb.Key[schemas.Pool]{SQL: "p.id", Of: func(p *schemas.Pool) any { return p.ID }}, Usual: "name",
	By: map[string]sqldb.Key[schemas.Pool]{
		"name":       {SQL: "p.name", Of: func(p *schemas.Pool) any { return p.Name }, Fold: true, Alone: true},
		"created_at": {SQL: "p.created_ns", Of: func(p *schemas.Pool) any { return p.CreatedAt.UnixNano() }},
	},
}

// Pools lists pools, by name where no order is asked for.
func (s *Store) Pools(ctx context.Context, sort, after string, limit int) ([]schemas.Pool, string, error) {
	tail, args, err := poolOrder.Tail(sort, after, limit)
	if err != nil {
		return nil, "", fmt.Errorf("list pools: %w", err)
	}
	found, err := pools(ctx, s.db, `1=1`+tail, args...)
	if err != nil {
		return nil, "", fmt.Errorf("list pools: %w", err)
	}
	found, next := poolOrder.Page(found, sort, limit)
	return found, next, nil
}

func poolField(p *schemas.Pool) func(string) string { return func(string) string { return p.Name } }

// CreatePool makes a pool for by. One that the same request made before is returned as it is.
func (s *Store) CreatePool(ctx context.Context, by string, p schemas.Pool) (schemas.Pool, error) {
	p.ID, p.Revision = sqldb.NewID(ctx), 1
	p.CreatedAt = s.now().UTC()
	p.UpdatedAt = p.CreatedAt
	err := entity.Made(ctx, s.db, &p, func(q sqldb.Queryer) ([]schemas.Pool, error) { return pools(ctx, q, `p.id=$1`, p.ID) }, func(tx *sql.Tx) error {
		if _, err := tx.ExecContext(ctx, `INSERT INTO pools (id, name, description, revision, created_ns, updated_ns) VALUES ($1,$2,$3,$4,$5,$6)`,
			p.ID, p.Name, p.Description, p.Revision, p.CreatedAt.UnixNano(), p.UpdatedAt.UnixNano()); err != nil {
			return entity.Explain(err, "pools", poolField(&p))
		}
		return entity.Audit(ctx, tx, s.now(), by, entity.Create, KindPool, p.Name, nil, p)
	})
	if err != nil {
		return p, fmt.Errorf("create pool %s: %w", p.Name, err)
	}
	return p, nil
}

// UpdatePool changes a pool for by, held against a revision that is not 0.
func (s *Store) UpdatePool(ctx context.Context, by, ref string, revision int64, change func(*schemas.Pool)) (p schemas.Pool, err error) {
	err = s.db.InTx(ctx, func(tx *sql.Tx) error {
		if p, err = pool(ctx, tx, ref); err != nil {
			return err
		}
		if err := entity.Check(revision, p.Revision); err != nil {
			return err
		}
		before := p
		if change(&p); p == before {
			return nil
		}
		if before.Name == schemas.DefaultPool && !strings.EqualFold(p.Name, before.Name) {
			return ErrDefault
		}
		p.Revision++
		p.UpdatedAt = entity.Later(s.now(), before.UpdatedAt)
		res, err := tx.ExecContext(ctx, `UPDATE pools SET name=$1, description=$2, revision=$3, updated_ns=$4 WHERE id=$5 AND revision=$6`,
			p.Name, p.Description, p.Revision, p.UpdatedAt.UnixNano(), p.ID, before.Revision)
		if err := entity.One(res, err); err != nil {
			return entity.Explain(err, "pools", poolField(&p))
		}
		return entity.Audit(ctx, tx, s.now(), by, entity.Update, KindPool, p.Name, before, p)
	})
	if err != nil {
		return p, fmt.Errorf("update pool %s: %w", ref, err)
	}
	return p, nil
}

// DeletePool removes an empty pool for by.
func (s *Store) DeletePool(ctx context.Context, by, ref string, revision int64) error {
	err := s.db.InTx(ctx, func(tx *sql.Tx) error {
		p, err := pool(ctx, tx, ref)
		if err != nil {
			return err
		}
		if err := entity.Check(revision, p.Revision); err != nil {
			return err
		}
		if p.Name == schemas.DefaultPool {
			return ErrDefault
		}
		if _, err := tx.ExecContext(ctx, `DELETE FROM pools WHERE id=$1`, p.ID); err != nil {
			return entity.Explain(err, "pools", poolField(&p))
		}
		return entity.Audit(ctx, tx, s.now(), by, entity.Delete, KindPool, p.Name, p, nil)
	})
	if err != nil {
		return fmt.Errorf("delete pool %s: %w", ref, err)
	}
	return nil
}
