package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"

	"auspex/internal/cmdb"
	"auspex/internal/store/sqldb"
	"auspex/internal/textfile"
	"auspex/schemas"
)

// withInventory opens the inventory of a configuration for one command.
func withInventory(ctx context.Context, cfg Config, f func(*cmdb.Inventory) error) (err error) {
	db, err := sqldb.Open(ctx, cfg.Store.SQL)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, db.Close()) }()
	s := newStack(cfg, io.Discard, io.Discard)
	inv := cmdb.New(cfg.Inventory.Config, db, s.log, s.reg)
	if err := inv.Open(ctx); err != nil {
		return err
	}
	return f(inv)
}

// ImportInventory replaces the inventory with a file; bad records are named and
// skipped, or refuse the file with strict.
func ImportInventory(ctx context.Context, cfg Config, file string, strict bool, in io.Reader, out, errw io.Writer) error {
	t, problems, err := cmdb.ReadFile(file, in)
	if err != nil {
		return err
	}
	if strict && len(problems) > 0 {
		return fmt.Errorf("import %s: %w", textfile.Name(file), cmdb.Err(problems))
	}
	for _, p := range problems {
		fmt.Fprintln(errw, p.In(file))
	}
	return withInventory(ctx, cfg, func(inv *cmdb.Inventory) error {
		r, err := inv.Import(ctx, t)
		if err != nil {
			return err
		}
		fmt.Fprintf(out, "%d resources (%d added, %d changed, %d removed), %d links, %d workloads; %d records skipped\n",
			r.Resources, r.Added, r.Changed, r.Removed, r.Links, r.Workloads, len(problems))
		return nil
	})
}

// ExportInventory prints the inventory as topology.json (formats, section 1).
func ExportInventory(ctx context.Context, cfg Config, out io.Writer) error {
	return withInventory(ctx, cfg, func(inv *cmdb.Inventory) error {
		enc := json.NewEncoder(out)
		enc.SetIndent("", " ")
		return enc.Encode(inv.Snapshot().Topology())
	})
}

// checkCredentials finds references of the inventory that no secret answers.
func (s *stack) checkCredentials(ctx context.Context, resources []schemas.Resource) error {
	var errs []error
	seen := map[string]bool{}
	for _, r := range resources {
		ref := r.Attrs[schemas.AttrCredential]
		if ref == "" || seen[ref] {
			continue
		}
		seen[ref] = true
		if _, _, err := s.secrets.Secret(ctx, ref); err != nil {
			errs = append(errs, fmt.Errorf("resource %s: %w", r.ID, err))
		}
	}
	return errors.Join(errs...)
}
