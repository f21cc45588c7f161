// Package configs keeps what servers and GPUs are to be configured as, version by version, and what has
// become of each in the world. It stores what is desired and applies nothing: control does, and writes
// what it has found.
package configs

import (
	"context"
	"database/sql"
	"encoding/json"
	"fmt"
	"reflect"
	"strconv"
	"time"

	"auspex/internal/store/entity"
	"auspex/internal/store/estate"
	"auspex/internal/store/sqldb"
	"auspex/schemas"
)

// What rows of the audit are about.
const (
	KindServer = "server_config"
	KindGPU    = "gpu_config"
)

// Keep is how many versions of each server and GPU are kept, the latest.
const Keep = 500

// MaxBytes bounds a JSON object of a configuration.
const MaxBytes = 64 << 10

// Store reads and writes the tables of migrations 0092 and 0119.
type Store struct {
	db  *sqldb.DB
	now func() time.Time
}

// New returns the store of a relational database whose schema is up to date.
func New(db *sqldb.DB) *Store { return &Store{db: db, now: time.Now} }

const (
	serverColumns = `c.id, c.server_id, s.name, c.version, c.bios_config, c.raid_config, c.network_config, c.created_by, c.created_ns
FROM server_configs c JOIN servers s ON s.id=c.server_id`
	gpuColumns = `c.id, c.gpu_id, g.name, c.version, c.power_limit, c.memory_clock, c.driver_config, c.created_by, c.created_ns
FROM gpu_configs c JOIN gpus g ON g.id=c.gpu_id`
)

func scanServer(rows *sql.Rows) (c schemas.ServerConfig, err error) {
	var created int64
	var bios, raid, network []byte
	if err := rows.Scan(&c.ID, &c.ServerID, &c.Server, &c.Version, &bios, &raid, &network, &c.CreatedBy, &created); err != nil {
		return c, err
	}
	c.CreatedAt = time.Unix(0, created).UTC()
	for text, to := range map[*[]byte]*map[string]any{&bios: &c.BIOS, &raid: &c.RAID, &network: &c.Network} {
		if err := json.Unmarshal(*text, to); err != nil {
			return c, err
		}
	}
	return c, nil
}

// scanGPU reads the columns of a version, and those behind it into more.
func scanGPU(rows *sql.Rows, more ...any) (c schemas.GPUConfig, err error) {
	var created int64
	var driver []byte
	to := []any{&c.ID, &c.GPUID, &c.GPU, &c.Version, &c.PowerLimit, &c.MemoryClock, &driver, &c.CreatedBy, &created}
	if err := rows.Scan(append(to, more...)...); err != nil {
		return c, err
	}
	c.CreatedAt = time.Unix(0, created).UTC()
	return c, json.Unmarshal(driver, &c.Driver)
}

func servers(ctx context.Context, q sqldb.Queryer, where string, args ...any) ([]schemas.ServerConfig, error) {
	return sqldb.Rows(ctx, q, scanServer, `SELECT `+serverColumns+` WHERE `+where, args...)
}

func gpus(ctx context.Context, q sqldb.Queryer, where string, args ...any) ([]schemas.GPUConfig, error) {
	scan := func(rows *sql.Rows) (schemas.GPUConfig, error) { return scanGPU(rows) }
	return sqldb.Rows(ctx, q, scan, `SELECT `+gpuColumns+` WHERE `+where, args...)
}

// ofServer and ofGPU choose versions before one, the latest first; 0 is all.
const (
	ofServer = `c.server_id=$1 AND ($2=0 OR c.version<$2) ORDER BY c.version DESC LIMIT $3`
	ofGPU    = `c.gpu_id=$1 AND ($2=0 OR c.version<$2) ORDER BY c.version DESC LIMIT $3`
)

// Server returns the latest version of a server, by its id.
func (s *Store) Server(ctx context.Context, id string) (schemas.ServerConfig, error) {
	found, err := servers(ctx, s.db, ofServer, id, 0, 1)
	return entity.Only(found, err, KindServer, id)
}

// GPU returns the latest version of a GPU, by its id.
func (s *Store) GPU(ctx context.Context, id string) (schemas.GPUConfig, error) {
	found, err := gpus(ctx, s.db, ofGPU, id, 0, 1)
	return entity.Only(found, err, KindGPU, id)
}

// Servers lists the versions of a server, by its id, the latest first, those before one where
// that is not 0.
func (s *Store) Servers(ctx context.Context, id string, before int64, limit int) ([]schemas.ServerConfig, error) {
	found, err := servers(ctx, s.db, ofServer, id, before, limit)
	if err != nil {
		return nil, fmt.Errorf("list configurations of server %s: %w", id, err)
	}
	return found, nil
}

// GPUs lists the versions of a GPU, by its id, as [Store.Servers] does.
func (s *Store) GPUs(ctx context.Context, id string, before int64, limit int) ([]schemas.GPUConfig, error) {
	found, err := gpus(ctx, s.db, ofGPU, id, before, limit)
	if err != nil {
		return nil, fmt.Errorf("list configurations of GPU %s: %w", id, err)
	}
	return found, nil
}

// packed is a JSON object as it is stored.
func packed(field string, v map[string]any) (string, error) {
	if v == nil {
		v = map[string]any{}
	}
	text, err := json.Marshal(v)
	if err == nil && len(text) > MaxBytes {
		err = &entity.FieldError{Field: field, Value: fmt.Sprintf("of %d bytes", len(text)), Reason: fmt.Sprintf("is more than %d bytes", MaxBytes)}
	}
	return string(text), err
}

// PutServer makes the next version of a server for by, from the latest one, or from nothing
// where there is none. A revision that is not 0 is the version that the change was made of. What
// stays as it was is no version.
func (s *Store) PutServer(ctx context.Context, by, server string, revision int64, change func(*schemas.ServerConfig)) (c schemas.ServerConfig, err error) {
	id := sqldb.NewID(ctx)
	err = entity.Made(ctx, s.db, &c, func(q sqldb.Queryer) ([]schemas.ServerConfig, error) { return servers(ctx, q, `c.id=$1`, id) }, func(tx *sql.Tx) error {
		v, err := estate.Lock(ctx, tx, server) // versions are counted by one at a time
		if err != nil {
			return err
		}
		found, err := servers(ctx, tx, ofServer, server, 0, 1)
		if err != nil {
			return err
		}
		var before any
		c = schemas.ServerConfig{}
		if len(found) > 0 {
			c, before = found[0], found[0]
		}
		if err := entity.Check(revision, c.Version); err != nil {
			return err
		}
		was := c
		if change(&c); len(found) > 0 && reflect.DeepEqual(was, c) {
			return nil
		}
		c.ID, c.ServerID, c.Server, c.Version, c.CreatedBy, c.CreatedAt = id, server, v.Name, was.Version+1, by, s.now().UTC()
		texts := make([]string, 3)
		for i, p := range []struct {
			field string
			v     *map[string]any
		}{{"bios_config", &c.BIOS}, {"raid_config", &c.RAID}, {"network_config", &c.Network}} {
			if texts[i], err = packed(p.field, *p.v); err != nil {
				return err
			}
			if *p.v == nil {
				*p.v = map[string]any{}
			}
		}
		if _, err := tx.ExecContext(ctx, `INSERT INTO server_configs (id, server_id, version, bios_config, raid_config, network_config, created_by, created_ns)
VALUES ($1,$2,$3,$4,$5,$6,$7,$8)`, c.ID, server, c.Version, texts[0], texts[1], texts[2], by, c.CreatedAt.UnixNano()); err != nil {
			return entity.Explain(err, "server_configs", func(string) string { return strconv.FormatInt(c.Version, 10) })
		}
		if _, err := tx.ExecContext(ctx, `DELETE FROM server_configs WHERE server_id=$1 AND version<=$2`, server, c.Version-Keep); err != nil {
			return err
		}
		return entity.Audit(ctx, tx, c.CreatedAt, by, verb(before), KindServer, v.Name, before, c)
	})
	if err != nil {
		return c, fmt.Errorf("configure server %s: %w", server, err)
	}
	return c, nil
}

// PutGPU makes the next version of a GPU for by, as [Store.PutServer] does of a server.
func (s *Store) PutGPU(ctx context.Context, by, gpu string, revision int64, change func(*schemas.GPUConfig)) (c schemas.GPUConfig, err error) {
	id := sqldb.NewID(ctx)
	err = entity.Made(ctx, s.db, &c, func(q sqldb.Queryer) ([]schemas.GPUConfig, error) { return gpus(ctx, q, `c.id=$1`, id) }, func(tx *sql.Tx) error {
		v, err := estate.LockGPU(ctx, tx, gpu)
		if err != nil {
			return err
		}
		found, err := gpus(ctx, tx, ofGPU, gpu, 0, 1)
		if err != nil {
			return err
		}
		var before any
		c = schemas.GPUConfig{}
		if len(found) > 0 {
			c, before = found[0], found[0]
		}
		if err := entity.Check(revision, c.Version); err != nil {
			return err
		}
		was := c
		if change(&c); len(found) > 0 && reflect.DeepEqual(was, c) {
			return nil
		}
		c.ID, c.GPUID, c.GPU, c.Version, c.CreatedBy, c.CreatedAt = id, gpu, v.Name, was.Version+1, by, s.now().UTC()
		driver, err := packed("driver_config", c.Driver)
		if err != nil {
			return err
		}
		if c.Driver == nil {
			c.Driver = map[string]any{}
		}
		if _, err := tx.ExecContext(ctx, `INSERT INTO gpu_configs (id, gpu_id, version, power_limit, memory_clock, driver_config, created_by, created_ns)
VALUES ($1,$2,$3,$4,$5,$6,$7,$8)`, c.ID, gpu, c.Version, c.PowerLimit, c.MemoryClock, driver, by, c.CreatedAt.UnixNano()); err != nil {
			return entity.Explain(err, "gpu_configs", func(field string) string {
				switch {
				case field == "power_limit" && c.PowerLimit != nil:
					return strconv.FormatFloat(*c.PowerLimit, 'g', -1, 64)
				case field == "memory_clock" && c.MemoryClock != nil:
					return strconv.FormatInt(*c.MemoryClock, 10)
				}
				return strconv.FormatInt(c.Version, 10)
			})
		}
		if _, err := tx.ExecContext(ctx, `DELETE FROM gpu_configs WHERE gpu_id=$1 AND version<=$2`, gpu, c.Version-Keep); err != nil {
			return err
		}
		return entity.Audit(ctx, tx, c.CreatedAt, by, verb(before), KindGPU, v.Name, before, c)
	})
	if err != nil {
		return c, fmt.Errorf("configure GPU %s: %w", gpu, err)
	}
	return c, nil
}

func verb(before any) string {
	if before == nil {
		return entity.Create
	}
	return entity.Update
}
