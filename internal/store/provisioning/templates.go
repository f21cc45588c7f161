// Package provisioning keeps how systems are installed: templates with their versions, and what
// people say of a server's hardware beside the inventory.
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

	"github.com/google/uuid"

	"auspex/internal/store/entity"
	"auspex/internal/store/sqldb"
	"auspex/schemas"
)

// What rows of the audit are about.
const (
	KindTemplate = "template"
	KindHardware = "hardware"
)

// ErrRetired is of a template that takes no further version.
var ErrRetired = errors.New("it is retired")

// Store reads and writes the tables of migration 0113.
type Store struct {
	db  *sqldb.DB
	now func() time.Time
}

// New returns the store of a relational database whose schema is up to date.
func New(db *sqldb.DB) *Store { return &Store{db: db, now: time.Now} }

// A list has what identifies versions, and not their texts and parameters.
const (
	whole           = `v.text, v.parameters`
	listed          = `'', '{}'`
	versionColumns  = `v.created_by, v.created_ns, v.version, v.description, v.os_family, v.architectures, `
	templateColumns = `t.id, t.name, t.status, t.revision, t.created_ns, t.updated_ns, ` + versionColumns
	fromTemplates   = ` FROM templates t JOIN template_versions v ON v.template_id=t.id AND v.version=t.version`
)

func scanVersion(rows *sql.Rows, before ...any) (v schemas.TemplateVersion, err error) {
	var created int64
	var architectures, parameters []byte
	if err := rows.Scan(append(before, &v.VersionBy, &created, &v.Version, &v.Description, &v.OSFamily, &architectures, &v.Text, &parameters)...); err != nil {
		return v, err
	}
	v.VersionAt = time.Unix(0, created).UTC()
	return v, errors.Join(json.Unmarshal(architectures, &v.Architectures), json.Unmarshal(parameters, &v.Parameters))
}

func scanTemplate(rows *sql.Rows) (t schemas.Template, err error) {
	var created, updated int64
	t.TemplateVersion, err = scanVersion(rows, &t.ID, &t.Name, &t.Status, &t.Revision, &created, &updated)
	t.CreatedAt, t.UpdatedAt = time.Unix(0, created).UTC(), time.Unix(0, updated).UTC()
	return t, err
}

func templates(ctx context.Context, q sqldb.Queryer, what, where string, args ...any) ([]schemas.Template, error) {
	return sqldb.Rows(ctx, q, scanTemplate, `SELECT `+templateColumns+what+fromTemplates+` WHERE `+where, args...)
}

func template(ctx context.Context, q sqldb.Queryer, ref string) (schemas.Template, error) {
	found, err := templates(ctx, q, whole, `t.id=$1 OR t.name=$1`, ref)
	return entity.Only(found, err, KindTemplate, ref)
}

// Template returns the template with an id or a name, as its latest version has it.
func (s *Store) Template(ctx context.Context, ref string) (schemas.Template, error) {
	return template(ctx, s.db, ref)
}

var templateOrder = sqldb.Order[schemas.Template]{
	ID: sqldb.Key[schemas.Template]{SQL: "t.id", Of: func(t *schemas.Template) any { return t.ID }}, Usual: "name",
	By: map[string]sqldb.Key[schemas.Template]{
		"name":       {SQL: "t.name", Of: func(t *schemas.Template) any { return t.Name }, Alone: true},
		"created_at": {SQL: "t.created_ns", Of: func(t *schemas.Template) any { return t.CreatedAt.UnixNano() }},
		"updated_at": {SQL: "t.updated_ns", Of: func(t *schemas.Template) any { return t.UpdatedAt.UnixNano() }},
	},
}

// Templates lists templates of a status and a family, without their texts; what is empty asks nothing.
func (s *Store) Templates(ctx context.Context, status, family, sort, after string, limit int) ([]schemas.Template, string, error) {
	tail, args, err := templateOrder.Tail(sort, after, limit, status, family)
	if err != nil {
		return nil, "", fmt.Errorf("list templates: %w", err)
	}
	found, err := templates(ctx, s.db, listed, `($1='' OR t.status=$1) AND ($2='' OR v.os_family=$2)`+tail, args...)
	if err != nil {
		return nil, "", fmt.Errorf("list templates: %w", err)
	}
	found, next := templateOrder.Page(found, sort, limit)
	return found, next, nil
}

// Versions lists the versions of a template, by its id, without their texts, the latest first, those
// before one where that is not 0.
func (s *Store) Versions(ctx context.Context, id string, before int64, limit int) ([]schemas.TemplateVersion, error) {
	return s.versions(ctx, listed, `v.template_id=$1 AND ($2=0 OR v.version<$2) ORDER BY v.version DESC LIMIT $3`, id, before, limit)
}

// Version returns a version of a template, by its id.
func (s *Store) Version(ctx context.Context, id string, version int64) (schemas.TemplateVersion, error) {
	found, err := s.versions(ctx, whole, `v.template_id=$1 AND v.version=$2`, id, version)
	return entity.Only(found, err, "version", strconv.FormatInt(version, 10))
}

func (s *Store) versions(ctx context.Context, what, where string, args ...any) ([]schemas.TemplateVersion, error) {
	found, err := sqldb.Rows(ctx, s.db, func(rows *sql.Rows) (schemas.TemplateVersion, error) { return scanVersion(rows) },
		`SELECT `+versionColumns+what+` FROM template_versions v WHERE `+where, args...)
	if err != nil {
		return nil, fmt.Errorf("read versions of a template: %w", err)
	}
	return found, nil
}

// put writes the version that a template has now.
func put(ctx context.Context, tx *sql.Tx, t *schemas.Template) error {
	if t.Parameters == nil {
		t.Parameters = map[string]any{}
	}
	architectures, err := json.Marshal(t.Architectures)
	if err != nil {
		return err
	}
	parameters, err := json.Marshal(t.Parameters)
	if err != nil {
		return err
	}
	_, err = tx.ExecContext(ctx, `INSERT INTO template_versions (template_id, version, description, os_family, architectures, text, parameters, created_by, created_ns)
VALUES ($1,$2,$3,$4,$5,$6,$7,$8,$9)`, t.ID, t.Version, t.Description, t.OSFamily, string(architectures), t.Text, string(parameters), t.VersionBy, t.VersionAt.UnixNano())
	return entity.Explain(err, "template_versions", func(field string) string {
		switch field {
		case "os_family":
			return t.OSFamily
		case "text", "parameters":
			return fmt.Sprintf("of %d bytes", map[string]int{"text": len(t.Text), "parameters": len(parameters)}[field])
		}
		return strconv.FormatInt(t.Version, 10)
	})
}

// Create makes a template for by, with its first version. One that the same request made before is
// returned as it is. That it can be used is the caller's to check.
func (s *Store) Create(ctx context.Context, by, name string, b schemas.TemplateBody) (t schemas.Template, err error) {
	id, now := sqldb.NewID(ctx), s.now().UTC()
	err = entity.Made(ctx, s.db, &t, func(q sqldb.Queryer) ([]schemas.Template, error) { return templates(ctx, q, whole, `t.id=$1`, id) }, func(tx *sql.Tx) error {
		if uuid.Validate(name) == nil { // it would be taken for an id
			return &entity.FieldError{Field: "name", Value: name, Reason: "is a UUID, and ids are UUIDs"}
		}
		t = schemas.Template{
			ID: id, Name: name, Status: schemas.TemplateActive, CreatedAt: now, UpdatedAt: now, Revision: 1,
			TemplateVersion: schemas.TemplateVersion{Version: 1, TemplateBody: b, VersionBy: by, VersionAt: now},
		}
		if _, err := tx.ExecContext(ctx, `INSERT INTO templates (id, name, status, version, revision, created_ns, updated_ns) VALUES ($1,$2,$3,$4,$5,$6,$7)`,
			t.ID, t.Name, t.Status, t.Version, t.Revision, now.UnixNano(), now.UnixNano()); err != nil {
			return entity.Explain(err, "templates", func(string) string { return name })
		}
		if err := put(ctx, tx, &t); err != nil {
			return err
		}
		return entity.Audit(ctx, tx, now, by, entity.Create, KindTemplate, t.Name, nil, t)
	})
	if err != nil {
		return t, fmt.Errorf("create template %s: %w", name, err)
	}
	return t, nil
}

// Update changes a template for by, held against a revision that is not 0: another body makes the
// next version, another status does not. What stays as it was changes nothing.
func (s *Store) Update(ctx context.Context, by, ref string, revision int64, change func(*schemas.Template)) (t schemas.Template, err error) {
	err = s.db.InTx(ctx, func(tx *sql.Tx) error {
		if t, err = template(ctx, tx, ref); err != nil {
			return err
		}
		if err := entity.Check(revision, t.Revision); err != nil {
			return err
		}
		before := t
		change(&t)
		another := !reflect.DeepEqual(before.TemplateBody, t.TemplateBody)
		if !another && t.Status == before.Status {
			return nil
		}
		if another && before.Status == schemas.TemplateRetired && t.Status == schemas.TemplateRetired {
			return ErrRetired
		}
		now := s.now()
		t.UpdatedAt, t.Revision = entity.Later(now, before.UpdatedAt), before.Revision+1
		if another {
			t.Version, t.VersionBy, t.VersionAt = before.Version+1, by, t.UpdatedAt
		}
		res, err := tx.ExecContext(ctx, `UPDATE templates SET status=$1, version=$2, revision=$3, updated_ns=$4 WHERE id=$5 AND revision=$6`,
			t.Status, t.Version, t.Revision, t.UpdatedAt.UnixNano(), t.ID, before.Revision)
		if err := entity.One(res, err); err != nil {
			return entity.Explain(err, "templates", func(string) string { return t.Status })
		}
		if another {
			if err := put(ctx, tx, &t); err != nil {
				return err
			}
		}
		return entity.Audit(ctx, tx, now, by, entity.Update, KindTemplate, t.Name, before, t)
	})
	if err != nil {
		return t, fmt.Errorf("update template %s: %w", ref, err)
	}
	return t, nil
}

// Delete removes a template that nothing refers to, with its versions; else it is [entity.ErrInUse].
func (s *Store) Delete(ctx context.Context, by, ref string, revision int64) error {
	err := s.db.InTx(ctx, func(tx *sql.Tx) error {
		t, err := template(ctx, tx, ref)
		if err != nil {
			return err
		}
		if err := entity.Check(revision, t.Revision); err != nil {
			return err
		}
		// First what others change: of two at once, one comes first.
		if err := entity.One(tx.ExecContext(ctx, `UPDATE templates SET revision=revision+1 WHERE id=$1 AND revision=$2`, t.ID, t.Revision)); err != nil {
			return err
		}
		for _, q := range []string{`DELETE FROM template_versions WHERE template_id=$1`, `DELETE FROM templates WHERE id=$1`} {
			if _, err := tx.ExecContext(ctx, q, t.ID); err != nil {
				return entity.Explain(err, "templates", func(string) string { return t.Name })
			}
		}
		return entity.Audit(ctx, tx, s.now(), by, entity.Delete, KindTemplate, t.Name, t, nil)
	})
	if err != nil {
		return fmt.Errorf("delete template %s: %w", ref, err)
	}
	return nil
}
