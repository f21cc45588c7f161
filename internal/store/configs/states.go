package configs

import (
	"context"
	"database/sql"
	"encoding/json"
	"fmt"
	"time"

	"auspex/internal/store/entity"
	"auspex/internal/store/sqldb"
	"auspex/schemas"
)

// Wanted is the latest configuration of a server or GPU that the inventory has, as control sets it.
type Wanted struct {
	Subject, Kind, Name, Server string
	Version                     int64
	By                          string
	Step                        string            // of control; "" where Err says why there is none
	With                        map[string]string // its parameters
	Err                         error             // an [UnsetError]
	Empty                       bool              // it says nothing
}

// Latest returns the latest configurations of the servers and GPUs that the inventory has, those that were
// stored since a time; the zero one is of all.
func (s *Store) Latest(ctx context.Context, since time.Time) (out []Wanted, err error) {
	var from int64
	if !since.IsZero() {
		from = since.UnixNano()
	}
	all, err := servers(ctx, s.db, `c.created_ns>=$1 AND s.present=TRUE AND c.version=(SELECT max(o.version) FROM server_configs o WHERE o.server_id=c.server_id)`, from)
	if err != nil {
		return nil, fmt.Errorf("list the latest configurations of servers: %w", err)
	}
	for i := range all {
		c := &all[i]
		w := Wanted{Subject: c.ServerID, Kind: schemas.ConfigOfServer, Name: c.Server, Server: c.Server, Version: c.Version, By: c.CreatedBy}
		if w.Empty = len(c.BIOS)+len(c.RAID)+len(c.Network) == 0; !w.Empty {
			w.Step, w.With, w.Err = ServerSettings(c)
		}
		out = append(out, w)
	}
	type placed struct {
		schemas.GPUConfig

		server string
	}
	parts, err := sqldb.Rows(ctx, s.db, func(rows *sql.Rows) (p placed, err error) {
		p.GPUConfig, err = scanGPU(rows, &p.server)
		return p, err
	}, `SELECT c.id, c.gpu_id, g.name, c.version, c.power_limit, c.memory_clock, c.driver_config, c.created_by, c.created_ns, s.name
FROM gpu_configs c JOIN gpus g ON g.id=c.gpu_id JOIN servers s ON s.id=g.server_id
WHERE c.created_ns>=$1 AND g.present=TRUE AND s.present=TRUE AND c.version=(SELECT max(o.version) FROM gpu_configs o WHERE o.gpu_id=c.gpu_id)`, from)
	if err != nil {
		return nil, fmt.Errorf("list the latest configurations of GPUs: %w", err)
	}
	for i := range parts {
		c := &parts[i]
		w := Wanted{Subject: c.GPUID, Kind: schemas.ConfigOfGPU, Name: c.GPU, Server: c.server, Version: c.Version, By: c.CreatedBy, Step: SetGPU}
		if w.Empty = c.PowerLimit == nil && c.MemoryClock == nil && len(c.Driver) == 0; !w.Empty {
			w.With, w.Err = GPUSettings(&c.GPUConfig)
		}
		out = append(out, w)
	}
	return out, nil
}

// Standing is a state as it is stored.
type Standing struct {
	schemas.ConfigState

	Revision int64 // of the row; 0 where there is none yet
}

func scanState(rows *sql.Rows) (s Standing, err error) {
	var doc []byte
	if err := rows.Scan(&s.Revision, &doc); err != nil {
		return s, err
	}
	return s, json.Unmarshal(doc, &s.ConfigState)
}

// States returns all states.
func (s *Store) States(ctx context.Context) ([]Standing, error) {
	out, err := sqldb.Rows(ctx, s.db, scanState, `SELECT revision, doc FROM config_states`)
	if err != nil {
		return nil, fmt.Errorf("list states of configurations: %w", err)
	}
	return out, nil
}

// State returns the state of the configuration of a server or GPU, by its id; known is false where
// nobody has looked at it yet.
func (s *Store) State(ctx context.Context, subject string) (st Standing, known bool, err error) {
	found, err := sqldb.Rows(ctx, s.db, scanState, `SELECT revision, doc FROM config_states WHERE subject=$1`, subject)
	if err != nil {
		return st, false, fmt.Errorf("read the state of the configuration of %s: %w", subject, err)
	}
	if len(found) == 0 {
		return st, false, nil
	}
	return found[0], true, nil
}

// PutState stores a state. One that somebody else has stored since it was read is [entity.ErrChanged].
func (s *Store) PutState(ctx context.Context, st *Standing) error {
	return s.putState(ctx, s.db, st)
}

// Claim is PutState of a state with an operation that is to be asked for, where none of the others on its server, by
// their subjects, has one under way: else it is [entity.ErrChanged].
func (s *Store) Claim(ctx context.Context, st *Standing, others []string) error {
	before := st.Revision
	err := s.db.InTx(ctx, func(tx *sql.Tx) error {
		st.Revision = before
		if _, err := tx.ExecContext(ctx, `UPDATE servers SET fence=fence+1 WHERE name=$1`, st.Server); err != nil {
			return fmt.Errorf("lock %s: %w", st.Server, err)
		}
		in, args := sqldb.In(1, others)
		found, err := sqldb.Rows(ctx, tx, scanState, `SELECT revision, doc FROM config_states WHERE subject IN (`+in+`)`, args...)
		if err != nil {
			return fmt.Errorf("list states of configurations: %w", err)
		}
		for i := range found {
			if o := &found[i]; o.Subject != st.Subject && o.Operation != "" {
				return fmt.Errorf("%s is being set on %s: %w", o.Name, st.Server, entity.ErrChanged)
			}
		}
		return s.putState(ctx, tx, st)
	})
	if err != nil {
		st.Revision = before
	}
	return err
}

type execer interface {
	ExecContext(ctx context.Context, query string, args ...any) (sql.Result, error)
}

func (s *Store) putState(ctx context.Context, x execer, st *Standing) error {
	doc, err := json.Marshal(&st.ConfigState)
	if err != nil {
		return err
	}
	now := s.now().UnixNano()
	var r sql.Result
	if st.Revision == 0 {
		r, err = x.ExecContext(ctx, `INSERT INTO config_states (subject, kind, revision, updated_ns, doc) VALUES ($1,$2,1,$3,$4) ON CONFLICT (subject) DO NOTHING`,
			st.Subject, st.Kind, now, string(doc))
	} else {
		r, err = x.ExecContext(ctx, `UPDATE config_states SET revision=revision+1, updated_ns=$3, doc=$4 WHERE subject=$1 AND revision=$2`,
			st.Subject, st.Revision, now, string(doc))
	}
	var n int64
	if err == nil {
		n, err = r.RowsAffected()
	}
	if err == nil && n == 0 {
		err = entity.ErrChanged
	}
	if err != nil {
		return fmt.Errorf("store the state of the configuration of %s: %w", st.Name, err)
	}
	st.Revision++
	return nil
}
