package provisioning

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"strconv"
	"time"

	"auspex/internal/store/entity"
	"auspex/internal/store/estate"
	"auspex/internal/store/sqldb"
	"auspex/schemas"
)

// Overridden is what people say of a server.
type Overridden struct {
	ServerID string `json:"server_id"`
	schemas.HardwareOverrides
	Version   int64     `json:"version"` // from 1, by one with each change
	ChangedBy string    `json:"changed_by"`
	ChangedAt time.Time `json:"changed_at"`
}

func scanOverridden(rows *sql.Rows) (o Overridden, err error) {
	var changed int64
	var doc []byte
	var name sql.NullString
	var version sql.NullInt64
	if err := rows.Scan(&o.ServerID, &o.Version, &doc, &name, &version, &o.ChangedBy, &changed); err != nil {
		return o, err
	}
	err = json.Unmarshal(doc, &o.HardwareOverrides)
	o.ChangedAt, o.Template, o.TemplateVersion = time.Unix(0, changed).UTC(), name.String, version.Int64
	return o, err
}

func overridden(ctx context.Context, q sqldb.Queryer, where string, args ...any) ([]Overridden, error) {
	return sqldb.Rows(ctx, q, scanOverridden, `SELECT o.server_id, o.version, o.doc, t.name, o.template_version, o.changed_by, o.changed_ns
FROM hardware_overrides o LEFT JOIN templates t ON t.id=o.template_id WHERE `+where, args...)
}

// Overrides returns what people say of servers, by their ids; of whom nobody has said anything,
// there is none.
func (s *Store) Overrides(ctx context.Context, servers []string) (map[string]Overridden, error) {
	out := make(map[string]Overridden)
	if len(servers) == 0 {
		return out, nil
	}
	list, args := sqldb.In(1, servers)
	found, err := overridden(ctx, s.db, `o.server_id IN (`+list+`)`, args...)
	if err != nil {
		return nil, fmt.Errorf("read overrides of hardware: %w", err)
	}
	for i := range found {
		out[found[i].ServerID] = found[i]
	}
	return out, nil
}

// Revision is what a change is held against: there is one before anybody has said anything, too.
func (o *Overridden) Revision() int64 { return o.Version + 1 }

// Override says of a server, by its id, all that people say of it, for by, held against a revision
// that is not 0. What stays as it was is no version.
func (s *Store) Override(ctx context.Context, by, server string, revision int64, said schemas.HardwareOverrides) (o Overridden, err error) {
	err = s.db.InTx(ctx, func(tx *sql.Tx) error {
		v, err := estate.Lock(ctx, tx, server) // versions are counted by one at a time
		if err != nil {
			return err
		}
		found, err := overridden(ctx, tx, `o.server_id=$1`, server)
		if err != nil {
			return err
		}
		was := Overridden{ServerID: server}
		var before any
		if len(found) > 0 {
			was = found[0]
			before = was
		}
		if err := entity.Check(revision, was.Revision()); err != nil {
			return err
		}
		var id *string
		var pinned *int64
		if said.Template != "" {
			t, err := template(ctx, tx, said.Template)
			if errors.Is(err, entity.ErrNone) {
				return &entity.FieldError{Field: "template", Value: said.Template, Reason: "is no template"}
			} else if err != nil {
				return err
			}
			if t.Status == schemas.TemplateRetired && was.Template != t.Name {
				return &entity.FieldError{Field: "template", Value: said.Template, Reason: "is retired"}
			}
			said.Template, id = t.Name, &t.ID
			if said.TemplateVersion != 0 {
				if said.TemplateVersion > t.Version {
					return &entity.FieldError{
						Field: "template_version", Value: strconv.FormatInt(said.TemplateVersion, 10), Reason: fmt.Sprintf("is none that it has; its latest is %d", t.Version),
					}
				}
				n := said.TemplateVersion
				pinned = &n
			}
		} else if said.TemplateVersion != 0 {
			return &entity.FieldError{Field: "template_version", Value: strconv.FormatInt(said.TemplateVersion, 10), Reason: "is of no template"}
		}
		if o = was; reflect.DeepEqual(was.HardwareOverrides, said) {
			return nil
		}
		now := s.now()
		o = Overridden{ServerID: server, HardwareOverrides: said, Version: was.Version + 1, ChangedBy: by, ChangedAt: entity.Later(now, was.ChangedAt)}
		said.Template, said.TemplateVersion = "", 0 // which stand beside it
		doc, err := json.Marshal(said)
		if err != nil {
			return err
		}
		if _, err := tx.ExecContext(ctx, `INSERT INTO hardware_overrides (server_id, version, doc, template_id, template_version, changed_by, changed_ns)
VALUES ($1,$2,$3,$4,$5,$6,$7) ON CONFLICT (server_id) DO UPDATE SET version=excluded.version, doc=excluded.doc, template_id=excluded.template_id,
template_version=excluded.template_version, changed_by=excluded.changed_by, changed_ns=excluded.changed_ns`,
			server, o.Version, string(doc), id, pinned, by, o.ChangedAt.UnixNano()); err != nil {
			return entity.Explain(err, "hardware_overrides", func(string) string { return fmt.Sprintf("of %d bytes", len(doc)) })
		}
		verb := entity.Update
		if before == nil {
			verb = entity.Create
		}
		return entity.Audit(ctx, tx, now, by, verb, KindHardware, v.Name, before, o)
	})
	if err != nil {
		return o, fmt.Errorf("override hardware of %s: %w", server, err)
	}
	return o, nil
}
