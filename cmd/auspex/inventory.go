package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"os"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"auspex/internal/cmdb"
	"auspex/internal/store/estate"
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
	inv := newInventory(cfg.Inventory.Config, db, s.log, s.reg)
	if err := inv.Open(ctx); err != nil {
		return err
	}
	return f(inv)
}

// ImportOptions is what `auspex cmdb import` and `restore` get beside the configuration.
type ImportOptions struct {
	cmdb.ImportOptions
	Strict bool // refuse any bad record
}

// ImportInventory makes a file what its source brings; bad records are named and
// skipped, or refuse the file with Strict.
func ImportInventory(ctx context.Context, cfg Config, file string, o ImportOptions, in io.Reader, out, errw io.Writer) error {
	d, err := cmdb.ReadDraft(file, in)
	if err != nil {
		return err
	}
	o.Origin = textfile.Name(file)
	return withInventory(ctx, cfg, func(inv *cmdb.Inventory) error {
		if o.Strict {
			dry := o.ImportOptions
			dry.DryRun, dry.Bounds = true, cmdb.NoBounds()
			r, err := inv.Import(ctx, d, dry)
			if err := errors.Join(err, cmdb.Err(r.Problems)); err != nil {
				return fmt.Errorf("import %s: %w", o.Origin, err)
			}
		}
		r, err := inv.Import(ctx, d, o.ImportOptions)
		for _, p := range r.Problems {
			fmt.Fprintln(errw, p.In(file))
		}
		if err := printImport(r, err, o.DryRun, out, errw); err != nil {
			return fmt.Errorf("import %s: %w", o.Origin, err)
		}
		return nil
	})
}

// RestoreInventory imports a version that was kept; 0 is the one before the current.
func RestoreInventory(ctx context.Context, cfg Config, version int64, o ImportOptions, out, errw io.Writer) error {
	return withInventory(ctx, cfg, func(inv *cmdb.Inventory) error {
		r, err := inv.Restore(ctx, version, o.ImportOptions)
		return printImport(r, err, o.DryRun, out, errw)
	})
}

// newInventory returns the inventory of a store, with the servers and GPUs that people are given
// in step with it.
func newInventory(cfg cmdb.Config, db *sqldb.DB, log *slog.Logger, reg prometheus.Registerer) *cmdb.Inventory {
	inv := cmdb.New(cfg, db, log, reg)
	if db != nil {
		inv.Follow(estate.New(db))
	}
	return inv
}

// printImport says what an import has changed or, when it was tried or refused,
// what it would change, name by name.
func printImport(r cmdb.Report, err error, dry bool, out, errw io.Writer) error {
	refused := errors.As(err, new(*cmdb.RefusedError))
	if err != nil && !refused {
		return err
	}
	if dry {
		for _, c := range r.Changes {
			fmt.Fprintln(out, c)
		}
	}
	if n := len(r.Held); n > 0 {
		fmt.Fprintf(errw, "%d resources stay although no source has them any more, because records of another source depend on them: %s\n",
			n, strings.Join(r.Held[:min(n, 5)], ", "))
	}
	for _, name := range slices.Sorted(maps.Keys(r.Kept)) {
		fmt.Fprintf(errw, "%s stays, with its parts, although the import no longer has it: %s\n", name, r.Kept[name])
	}
	if refused {
		if dry {
			return fmt.Errorf("%w; --force would import it anyway", err)
		}
		return fmt.Errorf("%w; nothing was changed: --dry-run shows the difference, --force imports it anyway", err)
	}
	if r.Conflicts > 0 {
		fmt.Fprintf(errw, "%d conflicts between the sources of the inventory; `auspex conflicts list` tells both sides\n", r.Conflicts)
	}
	verb := ""
	if dry {
		verb = "nothing was changed; there would be "
	}
	fmt.Fprintf(out, "%s%d resources (%d added, %d changed, %d removed), %d links, %d workloads; %d records skipped\n",
		verb, r.Resources, r.Added, r.Changed, r.Removed, r.Links, r.Workloads, r.Skipped)
	return nil
}

// ListInventoryVersions prints the imports that can be restored.
func ListInventoryVersions(ctx context.Context, cfg Config, out io.Writer) error {
	return withInventory(ctx, cfg, func(inv *cmdb.Inventory) error {
		all, err := inv.Versions(ctx)
		if err != nil {
			return err
		}
		w := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
		fmt.Fprintln(w, "VERSION\tSOURCE\tTIME\tFROM\tRESOURCES\tLINKS\tADDED\tCHANGED\tREMOVED\tCURRENT")
		for _, v := range all {
			current := ""
			if v.Current {
				current = "yes"
			}
			fmt.Fprintf(w, "%d\t%s\t%s\t%s\t%d\t%d\t%d\t%d\t%d\t%s\n",
				v.Version, v.Source, v.Time.Format(time.RFC3339), v.Origin, v.Resources, v.Links, v.Added, v.Changed, v.Removed, current)
		}
		return w.Flush()
	})
}

// prepareInventory reads the configured inventory, if there is one, and checks
// that it may be imported; what it returns makes it the inventory.
func (s *stack) prepareInventory(ctx context.Context, cfg Config) (apply func(context.Context) error, err error) {
	file := cfg.Inventory.File
	if file == "" {
		return nothing, nil
	}
	d, err := cmdb.ReadDraft(file, os.Stdin)
	if err != nil {
		return nil, err
	}
	o := cmdb.ImportOptions{Source: cfg.Inventory.Source, Origin: textfile.Name(file), Bounds: cfg.Inventory.Bounds, DryRun: true}
	r, err := s.inv.Import(ctx, d, o)
	if err != nil {
		for _, p := range r.Problems {
			s.log.Warn("unusable record of the inventory", "file", file, "problem", p.String())
		}
		return nil, fmt.Errorf(
			"import %s: %w; `auspex cmdb import --dry-run` shows the difference, --force imports it anyway", o.Origin, err,
		)
	}
	return func(ctx context.Context) error {
		for _, p := range r.Problems {
			s.log.Warn("skipped a record of the inventory", "file", file, "problem", p.String())
		}
		o.DryRun = false
		_, err := s.inv.Import(ctx, d, o)
		return err
	}, nil
}

// startInventory is prepareInventory at the start: what was imported before goes on
// where the file is refused, since no process should wait for a person to start.
func (s *stack) startInventory(ctx context.Context) error {
	apply, err := s.prepareInventory(ctx, s.cfg)
	if errors.As(err, new(*cmdb.RefusedError)) && len(s.inv.Snapshot().Resources()) > 0 {
		s.log.Error("the previous inventory stays in force", "error", err)
		return nil
	}
	if err != nil {
		return err
	}
	return apply(ctx)
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
		ref := r.Attrs.Get(schemas.AttrCredential)
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
