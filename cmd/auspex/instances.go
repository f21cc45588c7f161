package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"slices"
	"sync"
	"time"

	"github.com/spf13/cobra"

	"auspex/api/instance"
	"auspex/internal/cmdb"
	"auspex/internal/provision"
	"auspex/internal/run"
	"auspex/internal/store/entity"
	"auspex/internal/store/estate"
	"auspex/internal/store/provisioning"
	"auspex/internal/store/sqldb"
	"auspex/internal/store/wipes"
	"auspex/schemas"
)

// instances tells servers what they are, where somebody has said on which address.
func (s *stack) instances() []run.Component {
	if s.cfg.InstanceMetadata.Listen == "" || !s.cfg.has(RoleAPI) {
		return nil
	}
	return []run.Component{late("instance metadata", func(context.Context) (run.Component, error) {
		store := provisioning.New(s.db)
		records := &asking{inv: s.inv, estate: estate.New(s.db), provisioning: store, now: time.Now}
		srv, err := instance.New(s.cfg.InstanceMetadata, instance.Deps{
			Log: s.log, Metrics: s.reg, Now: time.Now, Secret: s.secrets.Secret, Read: store.UserDataRead, Records: records,
			Wiping: proofs{wipes.New(s.db, time.Now), records.record}.of,
		})
		if err != nil {
			return nil, fmt.Errorf("instance_metadata.%w", err)
		}
		if s.cfg.InstanceMetadata.TLS.CertFile != "" {
			s.reloads("certificate for instance metadata", func(_ context.Context, cfg Config) (func(context.Context) error, error) {
				cert, err := cfg.InstanceMetadata.TLS.Load()
				if err == nil && cert == nil {
					err = errors.New("tls: a listener with a certificate needs a restart to do without")
				}
				if err != nil {
					return nil, fmt.Errorf("instance_metadata.%w", err)
				}
				return func(context.Context) error { srv.SetCertificate(cert); return nil }, nil
			}, "instance_metadata.tls")
		}
		return run.Func("instance metadata", func(ctx context.Context, ready func()) error {
			return srv.Run(ctx, func(addr net.Addr) {
				s.log.Info("servers can ask for their metadata", "address", addr.String())
				ready()
			})
		}), nil
	})}
}

// asking finds which server asks, by the inventory and what people say beside it.
type asking struct {
	inv          *cmdb.Inventory
	estate       *estate.Store
	provisioning *provisioning.Store
	now          func() time.Time

	mu    sync.Mutex
	of    uint64 // the generation of the inventory that at is of
	since time.Time
	at    map[netip.Addr][]string // servers
}

// indexEvery is how often addresses are gathered while the inventory changes. An address that has
// gone or moved meanwhile is not answered: the record is asked, too.
const indexEvery = time.Second

// having are the servers with an address.
func (a *asking) having(addr netip.Addr) []string {
	names := a.inv.Snapshot()
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.at == nil || a.of != names.Generation && a.now().Sub(a.since) >= indexEvery {
		a.of, a.since, a.at = names.Generation, a.now(), map[netip.Addr][]string{}
		for r := range names.All() {
			if r.Kind != schemas.KindNIC {
				continue
			}
			for addr := range provision.Addresses(r) {
				a.at[addr] = append(a.at[addr], names.Server(r.ID))
			}
		}
	}
	return a.at[addr]
}

// At implements [instance.Records].
func (a *asking) At(ctx context.Context, addr netip.Addr) (r schemas.HardwareRecord, err error) {
	found := a.having(addr)
	if len(found) == 0 {
		return r, instance.ErrUnknown
	}
	if slices.ContainsFunc(found, func(server string) bool { return server != found[0] }) { // neither is told what may be the other's
		return r, fmt.Errorf("%w alone has %s", instance.ErrUnknown, addr)
	}
	if r, err = a.record(ctx, found[0]); err != nil {
		return r, err
	}
	for i := range r.Interfaces {
		if slices.Contains(r.Interfaces[i].Addresses, addr.String()) {
			return r, nil
		}
	}
	return schemas.HardwareRecord{}, instance.ErrUnknown
}

// Bearer implements [instance.Records].
func (a *asking) Bearer(ctx context.Context, secret string) (r schemas.HardwareRecord, err error) {
	server, err := a.provisioning.Bearer(ctx, secret)
	if err != nil {
		return r, err
	}
	if server == "" {
		return r, instance.ErrUnknown
	}
	return a.record(ctx, server)
}

// record is that of a server which is there and not retired.
func (a *asking) record(ctx context.Context, server string) (r schemas.HardwareRecord, err error) {
	v, err := a.estate.Server(ctx, server)
	switch {
	case errors.Is(err, entity.ErrNone):
		return r, instance.ErrUnknown
	case err != nil:
		return r, err
	case !v.Present || v.Status == schemas.ServerRetired:
		return r, instance.ErrUnknown
	}
	said, err := a.provisioning.Overrides(ctx, []string{v.ID})
	if err != nil {
		return r, err
	}
	o := said[v.ID]
	return provision.Derive(a.inv.Snapshot(), &v, &o.HardwareOverrides), nil
}

// metadataTokenCommand works on the relational store itself: it needs no server, and a running one
// reads the change at once.
func metadataTokenCommand(std IO) *cobra.Command {
	parent := &cobra.Command{
		Use: "metadata-token", Short: "Create, list or revoke the tokens with which servers ask for their metadata", Args: noArgs,
		RunE: func(c *cobra.Command, _ []string) error { return c.Help() },
		Long: `Create, list or revoke the tokens with which servers ask the instance metadata service what they are, where their address does not
say it or is not to be trusted. A server has one at most; another one takes its place. A token is shown once and stored as a hash.`,
		Example: `  auspex metadata-token create gpu-r01-03 --config auspex.yaml >metadata.token
  auspex metadata-token list --config auspex.yaml
  auspex metadata-token revoke gpu-r01-03 --config auspex.yaml`,
	}
	f := &configFlags{}
	on := func(cmd *cobra.Command, do func(context.Context, *provisioning.Store) error) error {
		cfg, err := f.load(std)
		if err != nil {
			return usageError{err}
		}
		return onStore(cmd.Context(), cfg, func(db *sqldb.DB) error { return do(cmd.Context(), provisioning.New(db)) })
	}
	create := &cobra.Command{
		Use: "create SERVER", Short: "Create the token of a server and print it once", Args: exactArgs(1, "a server"),
		RunE: func(cmd *cobra.Command, args []string) error {
			return on(cmd, func(ctx context.Context, s *provisioning.Store) error {
				plain, t, err := s.IssueToken(ctx, shellUser(), args[0])
				if err != nil {
					return err
				}
				fmt.Fprintf(cmd.ErrOrStderr(), "auspex: token for the metadata of %s; it is not shown again\n", t.Server)
				_, err = fmt.Fprintln(cmd.OutOrStdout(), plain)
				return err
			})
		},
	}
	var format string
	list := &cobra.Command{
		Use: "list", Short: "List the servers that have a token", Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if format != "table" && format != "json" {
				return usagef("--output: want table or json, got %q", format)
			}
			return on(cmd, func(ctx context.Context, s *provisioning.Store) error {
				return listMetadataTokens(ctx, s, format, cmd.OutOrStdout())
			})
		},
	}
	list.Flags().StringVarP(&format, "output", "o", "table", "table, or json: one object a line")
	revoke := &cobra.Command{
		Use: "revoke SERVER", Short: "Revoke the token of a server", Args: exactArgs(1, "a server"),
		RunE: func(cmd *cobra.Command, args []string) error {
			return on(cmd, func(ctx context.Context, s *provisioning.Store) error {
				return s.RevokeToken(ctx, shellUser(), args[0])
			})
		},
	}
	for _, c := range []*cobra.Command{create, list, revoke} {
		f.add(c)
	}
	parent.AddCommand(create, list, revoke)
	return parent
}

func listMetadataTokens(ctx context.Context, s *provisioning.Store, format string, out io.Writer) error {
	return listing[provisioning.Token]{
		head: []string{"SERVER", "CREATED", "CREATED BY"},
		page: func(after string) ([]provisioning.Token, string, error) { return s.Tokens(ctx, after, listPage) },
		row:  func(t *provisioning.Token) []any { return []any{t.Server, moment(t.CreatedAt), t.CreatedBy} },
		doc:  func(t *provisioning.Token) any { return t },
	}.print(format, out)
}
