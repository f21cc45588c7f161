package main

import (
	"errors"
	"fmt"

	"github.com/spf13/cobra"

	"auspex/internal/store/audit"
	"auspex/internal/store/sqldb"
)

// verifyCommand reads the audit in the relational store itself, so that nobody has to believe a
// server that may be at fault.
func verifyCommand(std IO) *cobra.Command {
	f := &configFlags{}
	c := &cobra.Command{
		Use: "verify", Short: "Read the whole audit in the relational store, and check that no row was changed, removed or put in", Args: noArgs,
		Long: `Read the whole audit in the relational store, without a server, and check that no row was changed, removed or put in between: each has
a hash over itself and the hash before it. Exit code 3 names the first row that does not hold.`,
		Example: "  auspex audit verify --config auspex.yaml",
		RunE: func(cmd *cobra.Command, _ []string) (err error) {
			cfg, err := f.load(std)
			if err != nil {
				return usageError{err}
			}
			db, err := sqldb.Connect(cmd.Context(), cfg.Store.SQL)
			if err != nil {
				return err
			}
			defer func() { err = errors.Join(err, db.Close()) }()
			n, err := audit.Verify(cmd.Context(), db)
			if errors.Is(err, audit.ErrBroken) {
				return lintError{fmt.Errorf("%w; %d rows before it hold", err, n)}
			}
			if err != nil {
				return err
			}
			_, err = fmt.Fprintf(cmd.OutOrStdout(), "%d rows, and all of them hold\n", n)
			return err
		},
	}
	f.add(c)
	return c
}
