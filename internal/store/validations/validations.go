// Package validations keeps what was found of servers when they were looked at, and tells what most of the fleet are like.
package validations

import (
	"context"
	"database/sql"
	"encoding/json"
	"fmt"
	"time"

	"auspex/internal/store/entity"
	"auspex/internal/store/estate"
	"auspex/internal/store/sqldb"
	"auspex/schemas"
)

// Keep is how many of each server are kept, the latest.
const Keep = 200

// Store reads and writes the table of migration 0122.
type Store struct {
	db  *sqldb.DB
	now func() time.Time
}

// New returns the store of a relational database whose schema is up to date.
func New(db *sqldb.DB) *Store { return &Store{db: db, now: time.Now} }

func scan(rows *sql.Rows) (v schemas.Validation, err error) {
	var doc []byte
	var created int64
	if err := rows.Scan(&v.Server, &v.Number, &doc, &created); err != nil {
		return v, err
	}
	name, number := v.Server, v.Number
	err = json.Unmarshal(doc, &v)
	v.Server, v.Number, v.Created = name, number, time.Unix(0, created).UTC() // as it is called now
	return v, err
}

func list(ctx context.Context, q sqldb.Queryer, where string, args ...any) ([]schemas.Validation, error) {
	return sqldb.Rows(ctx, q, scan, `SELECT s.name, v.number, v.doc, v.created_ns FROM validations v JOIN servers s ON s.id=v.server_id WHERE `+where, args...)
}

// Put keeps what was found of the server with v.ServerID, under the next number. What has its id is known already, and stays as it was.
func (s *Store) Put(ctx context.Context, v schemas.Validation) (schemas.Validation, error) {
	err := s.db.InTx(ctx, func(tx *sql.Tx) error {
		if _, err := estate.Lock(ctx, tx, v.ServerID); err != nil { // numbers are counted by one at a time
			return err
		}
		found, err := list(ctx, tx, `v.id=$1`, v.ID)
		if err != nil {
			return err
		}
		if len(found) > 0 {
			v = found[0]
			return nil
		}
		if err := tx.QueryRowContext(ctx, `SELECT COALESCE(MAX(number),0)+1 FROM validations WHERE server_id=$1`, v.ServerID).Scan(&v.Number); err != nil {
			return err
		}
		v.Created, v.Verdict = s.now().UTC(), schemas.Worst(v.Checks)
		doc, err := json.Marshal(v)
		if err != nil {
			return err
		}
		if _, err := tx.ExecContext(ctx, `INSERT INTO validations (id, server_id, number, verdict, doc, created_ns) VALUES ($1,$2,$3,$4,$5,$6)`,
			v.ID, v.ServerID, v.Number, v.Verdict, string(doc), v.Created.UnixNano()); err != nil {
			return entity.Explain(err, "validations", func(string) string { return fmt.Sprintf("of %d bytes", len(doc)) })
		}
		_, err = tx.ExecContext(ctx, `DELETE FROM validations WHERE server_id=$1 AND number<=$2`, v.ServerID, v.Number-Keep)
		return err
	})
	if err != nil {
		return v, fmt.Errorf("keep the validation %s of server %s: %w", v.ID, v.ServerID, err)
	}
	return v, nil
}

// Of lists those of a server, by its id, the latest first, those before a number where that is not 0.
func (s *Store) Of(ctx context.Context, server string, before int64, limit int) ([]schemas.Validation, error) {
	found, err := list(ctx, s.db, `v.server_id=$1 AND ($2=0 OR v.number<$2) ORDER BY v.number DESC LIMIT $3`, server, before, limit)
	if err != nil {
		return nil, fmt.Errorf("list validations of server %s: %w", server, err)
	}
	return found, nil
}

// Fleet is how many servers and GPUs of the same models have what.
type Fleet struct {
	GPUs    map[string]int            // servers of the model of the server, by how many GPUs they have
	Drivers map[string]map[string]int // GPUs by model and driver version
	Memory  map[string]map[string]int // GPUs by model and memory, in GB
}

// Fleet counts the servers and GPUs in the inventory that are of the models of a server, by its id, but for its own.
func (s *Store) Fleet(ctx context.Context, server string) (f Fleet, err error) {
	f = Fleet{GPUs: map[string]int{}, Drivers: map[string]map[string]int{}, Memory: map[string]map[string]int{}}
	type row struct {
		model, value string
		n            int
	}
	for _, c := range []struct {
		query string
		into  func(r row)
	}{
		{`SELECT '', CAST(n AS TEXT), count(*) FROM (SELECT count(g.id) AS n FROM servers s JOIN servers own ON own.id=$1 AND own.model=s.model
  LEFT JOIN gpus g ON g.server_id=s.id AND g.present=TRUE WHERE s.present=TRUE AND s.id<>$1 AND s.model<>'' GROUP BY s.id) counted GROUP BY n`, func(r row) { f.GPUs[r.value] += r.n }},
		{`SELECT g.model, g.driver_version, count(*) FROM gpus g WHERE g.present=TRUE AND g.server_id<>$1 AND g.driver_version<>''
  AND g.model IN (SELECT model FROM gpus WHERE server_id=$1) GROUP BY g.model, g.driver_version`, func(r row) { put(f.Drivers, r.model, r.value, r.n) }},
		{`SELECT g.model, CAST(g.memory_gb AS TEXT), count(*) FROM gpus g WHERE g.present=TRUE AND g.server_id<>$1 AND g.memory_gb IS NOT NULL
  AND g.model IN (SELECT model FROM gpus WHERE server_id=$1) GROUP BY g.model, g.memory_gb`, func(r row) { put(f.Memory, r.model, r.value, r.n) }},
	} {
		found, err := sqldb.Rows(ctx, s.db, func(rows *sql.Rows) (r row, err error) { return r, rows.Scan(&r.model, &r.value, &r.n) }, c.query, server)
		if err != nil {
			return f, fmt.Errorf("count the fleet beside server %s: %w", server, err)
		}
		for _, r := range found {
			c.into(r)
		}
	}
	return f, nil
}

func put(m map[string]map[string]int, model, value string, n int) {
	if m[model] == nil {
		m[model] = map[string]int{}
	}
	m[model][value] += n
}
