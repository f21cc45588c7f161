package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/spf13/cobra"

	"auspex/internal/store/join"
	"auspex/internal/store/sqldb"
)

// joinCommand works on the relational store itself: it needs no server, and a running one
// reads the change at once.
func joinCommand(std IO) *cobra.Command {
	parent := &cobra.Command{
		Use: "join", Short: "Create, list or revoke the tokens with which node agents join, and list machines", Args: noArgs,
		RunE: func(c *cobra.Command, _ []string) error { return c.Help() },
		Long: `Create, list or revoke the tokens with which node agents join that dial in, with or without a running server. A token is shown once
and stored as a hash. Each of its uses is bound to the key of the machine that shows it first; that machine comes back with its key as often
as it likes, until it or its token is revoked.`,
		Example: `  auspex join create gpu-r01-03 --server gpu-r01-03 --config auspex.yaml >join.token
  auspex join create image-2026-11 --uses 500 --expires 168h --accept --config auspex.yaml >join.token
  auspex join list --config auspex.yaml
  auspex join machines --config auspex.yaml
  auspex join revoke image-2026-11 --config auspex.yaml
  auspex join revoke --machine 5f1e…c0 --config auspex.yaml`,
	}
	f := &configFlags{}
	on := func(cmd *cobra.Command, do func(context.Context, *join.Store) error) error {
		cfg, err := f.load(std)
		if err != nil {
			return usageError{err}
		}
		return onStore(cmd.Context(), cfg, func(db *sqldb.DB) error {
			inv := newInventory(cfg.Inventory.Config, db, nil, nil)
			if err := inv.Open(cmd.Context()); err != nil {
				return err
			}
			return do(cmd.Context(), join.New(db, inv, nil))
		})
	}
	var format, machine string
	var spec join.Spec
	create := &cobra.Command{
		Use: "create NAME", Short: "Create a join token and print it once", Args: exactArgs(1, "a name"),
		RunE: func(cmd *cobra.Command, args []string) error {
			spec.Name = args[0]
			return on(cmd, func(ctx context.Context, s *join.Store) error {
				plain, t, err := s.Create(ctx, shellUser(), spec)
				if sentence := (join.BadError{}); errors.As(err, &sentence) || errors.Is(err, join.ErrName) {
					return usageError{err}
				}
				if err != nil {
					return err
				}
				fmt.Fprintf(cmd.ErrOrStderr(), "auspex: join token %s for %d machines, until %s; it is not shown again\n", t.Name, t.Uses, moment(t.Expires))
				_, err = fmt.Fprintln(cmd.OutOrStdout(), plain)
				return err
			})
		},
	}
	create.Flags().StringVar(&spec.Server, "server", "", "the server that its machine is (default: found by serial number or UUID)")
	create.Flags().IntVar(&spec.Uses, "uses", 1, "machines that may join with it, as for an image")
	create.Flags().DurationVar(&spec.Expiry, "expires", join.DefaultExpiry, "how long machines may join; who has joined stays")
	create.Flags().BoolVar(&spec.Accept, "accept", false, "accept at once what its machines propose for the inventory and contradicts nothing")
	formats := func() error {
		if format != "table" && format != "json" {
			return usagef("--output: want table or json, got %q", format)
		}
		return nil
	}
	list := &cobra.Command{
		Use: "list", Short: "List join tokens, without their secrets", Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := formats(); err != nil {
				return err
			}
			return on(cmd, func(ctx context.Context, s *join.Store) error {
				return listJoinTokens(ctx, s, format, cmd.OutOrStdout())
			})
		},
	}
	machines := &cobra.Command{
		Use: "machines", Short: "List the machines that have joined, and where they stand", Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := formats(); err != nil {
				return err
			}
			return on(cmd, func(ctx context.Context, s *join.Store) error { return listMachines(ctx, s, format, cmd.OutOrStdout()) })
		},
	}
	for _, c := range []*cobra.Command{list, machines} {
		c.Flags().StringVarP(&format, "output", "o", "table", "table, or json: one object a line")
	}
	revoke := &cobra.Command{
		Use: "revoke [NAME]", Short: "Revoke a join token with all its machines, or one machine", Args: cobra.MaximumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			if (len(args) == 1) == (machine != "") {
				return usagef("revoke what? Give the name of a token, or --machine with a key")
			}
			return on(cmd, func(ctx context.Context, s *join.Store) error {
				if machine != "" {
					return s.RevokeMachine(ctx, shellUser(), machine)
				}
				return s.Revoke(ctx, shellUser(), args[0])
			})
		},
	}
	revoke.Flags().StringVar(&machine, "machine", "", "key of a machine, as `auspex join machines` lists it")
	for _, c := range []*cobra.Command{create, list, machines, revoke} {
		f.add(c)
	}
	parent.AddCommand(create, list, machines, revoke)
	return parent
}

func listJoinTokens(ctx context.Context, s *join.Store, format string, out io.Writer) error {
	now := time.Now()
	return listing[join.Token]{
		head: []string{"NAME", "STATE", "SERVER", "USED", "ACCEPTS", "EXPIRES", "CREATED BY", "REFUSED", "LAST FROM"},
		page: func(after string) ([]join.Token, string, error) { return s.Tokens(ctx, "", after, listPage) },
		row: func(t *join.Token) []any {
			return []any{
				t.Name, t.State(now), t.Server, fmt.Sprintf("%d of %d", t.Used, t.Uses), t.Accept, moment(t.Expires), t.CreatedBy, t.Refused, t.RefusedFrom,
			}
		},
		doc: func(t *join.Token) any {
			return struct {
				Name        string    `json:"name"`
				State       string    `json:"state"`
				Server      string    `json:"server,omitempty"`
				Uses        int64     `json:"uses"`
				Used        int64     `json:"used"`
				Accept      bool      `json:"accept"`
				Created     time.Time `json:"created"`
				CreatedBy   string    `json:"created_by"`
				Expires     time.Time `json:"expires"`
				Revoked     time.Time `json:"revoked,omitzero"`
				RevokedBy   string    `json:"revoked_by,omitempty"`
				Refused     int64     `json:"refused,omitempty"`
				RefusedAt   time.Time `json:"refused_at,omitzero"`
				RefusedFrom string    `json:"refused_from,omitempty"`
			}{
				t.Name, t.State(now), t.Server, t.Uses, t.Used, t.Accept, t.Created, t.CreatedBy, t.Expires, t.Revoked, t.RevokedBy,
				t.Refused, t.RefusedAt, t.RefusedFrom,
			}
		},
	}.print(format, out)
}

func listMachines(ctx context.Context, s *join.Store, format string, out io.Writer) error {
	return listing[join.Bound]{
		head: []string{"KEY", "HOST", "SERVER", "SERIAL", "TOKEN", "ADMITTED", "JOINED", "SEEN", "ADDRESS", "DOUBT"},
		page: func(after string) ([]join.Bound, string, error) { return s.Machines(ctx, "", after, listPage) },
		row: func(m *join.Bound) []any {
			return []any{m.Key, m.Hostname, m.Server, m.Serial, m.Token, m.Admitted, moment(m.Joined), moment(m.Seen), m.Address, m.Doubt}
		},
		doc: func(m *join.Bound) any {
			return struct {
				Key       string    `json:"key"`
				Token     string    `json:"token"`
				Server    string    `json:"server,omitempty"`
				Doubt     string    `json:"doubt,omitempty"`
				Serial    string    `json:"serial,omitempty"`
				UUID      string    `json:"uuid,omitempty"`
				Hostname  string    `json:"hostname,omitempty"`
				Address   string    `json:"address,omitempty"`
				Admitted  bool      `json:"admitted"`
				Joined    time.Time `json:"joined"`
				Seen      time.Time `json:"seen"`
				Revoked   time.Time `json:"revoked,omitzero"`
				RevokedBy string    `json:"revoked_by,omitempty"`
			}{
				m.Key, m.Token, m.Server, m.Doubt, m.Serial, m.UUID, m.Hostname, m.Address, m.Admitted, m.Joined, m.Seen, m.Revoked, m.RevokedBy,
			}
		},
	}.print(format, out)
}
