package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/user"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"auspex/api/access"
	"auspex/internal/store/sqldb"
	"auspex/schemas"
)

// tokenCommand works on the relational store itself: it needs no server, and a
// running one reads the change at once.
func tokenCommand(std IO) *cobra.Command {
	parent := &cobra.Command{
		Use: "token", Short: "Create, list or revoke API tokens", Args: noArgs,
		RunE: func(c *cobra.Command, _ []string) error { return c.Help() },
		Long: `Create, list or revoke API tokens, with or without a running server. A token is shown once and stored as a hash; revoking it
ends its sessions.`,
		Example: `  auspex token create grafana --role viewer --expires 8760h --config auspex.yaml >grafana.token
  auspex token list --config auspex.yaml
  auspex token revoke grafana --config auspex.yaml`,
	}
	f := &configFlags{}
	on := func(cmd *cobra.Command, do func(context.Context, *access.Store) error) (err error) {
		cfg, err := f.load(std)
		if err != nil {
			return usageError{err}
		}
		db, err := sqldb.Open(cmd.Context(), cfg.Store.SQL)
		if err != nil {
			return err
		}
		defer func() { err = errors.Join(err, db.Close()) }()
		return do(cmd.Context(), access.New(db, cfg.API.SessionLifetime))
	}
	var role, user, format string
	var expires time.Duration
	create := &cobra.Command{
		Use: "create NAME", Short: "Create a token and print it once", Args: exactArgs(1, "a name"),
		RunE: func(cmd *cobra.Command, args []string) error {
			if expires < 0 {
				return usagef("--expires must not be negative")
			}
			return on(cmd, func(ctx context.Context, s *access.Store) error {
				plain, t, err := s.CreateToken(ctx, shellUser(), args[0], role, user, expires)
				if errors.Is(err, access.ErrRole) || errors.Is(err, access.ErrName) || errors.Is(err, access.ErrUser) {
					return usageError{err}
				}
				if err != nil {
					return err
				}
				fmt.Fprintf(cmd.ErrOrStderr(), "auspex: token %s, role %s, expires %s; it is not shown again\n", t.Name, t.Role, moment(t.Expires))
				_, err = fmt.Fprintln(cmd.OutOrStdout(), plain)
				return err
			})
		},
	}
	create.Flags().StringVar(&role, "role", access.RoleViewer, strings.Join(schemas.Roles(), ", "))
	create.Flags().StringVar(&user, "user", "", "whose it is, by id or username: it may what both its role and theirs may, while they are active")
	create.Flags().DurationVar(&expires, "expires", 0, "validity (default: no expiry)")
	_ = create.RegisterFlagCompletionFunc("role", cobra.FixedCompletions(schemas.Roles(), cobra.ShellCompDirectiveNoFileComp))
	list := &cobra.Command{
		Use: "list", Short: "List tokens, without their secrets", Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if format != "table" && format != "json" {
				return usagef("--output: want table or json, got %q", format)
			}
			return on(cmd, func(ctx context.Context, s *access.Store) error { return listTokens(ctx, s, format, cmd.OutOrStdout()) })
		},
	}
	list.Flags().StringVarP(&format, "output", "o", "table", "table, or json: one object a line")
	revoke := &cobra.Command{
		Use: "revoke NAME", Short: "Revoke a token and end its sessions", Args: exactArgs(1, "a name"),
		RunE: func(cmd *cobra.Command, args []string) error {
			return on(cmd, func(ctx context.Context, s *access.Store) error { return s.RevokeToken(ctx, shellUser(), args[0]) })
		},
	}
	for _, c := range []*cobra.Command{create, list, revoke} {
		f.add(c)
	}
	parent.AddCommand(create, list, revoke)
	return parent
}

// shellUser names in the audit who gave a command to the store itself.
func shellUser() string {
	if u, err := user.Current(); err == nil {
		return "shell:" + u.Username
	}
	return fmt.Sprintf("shell:uid %d", os.Getuid())
}

func listTokens(ctx context.Context, s *access.Store, format string, out io.Writer) error {
	return listing[access.Token]{
		head: []string{"NAME", "ROLE", "USER", "CREATED", "EXPIRES", "LAST USED"},
		page: func(after string) ([]access.Token, string, error) { return s.Tokens(ctx, "", after, listPage) },
		row: func(t *access.Token) []any {
			return []any{t.Name, t.Role, cmp.Or(t.User, "-"), moment(t.Created), moment(t.Expires), moment(t.Used)}
		},
		doc: func(t *access.Token) any {
			return struct {
				Name     string    `json:"name"`
				Role     string    `json:"role"`
				User     string    `json:"user,omitempty"`
				Created  time.Time `json:"created"`
				Expires  time.Time `json:"expires,omitzero"`
				LastUsed time.Time `json:"last_used,omitzero"`
			}{t.Name, t.Role, t.User, t.Created, t.Expires, t.Used}
		},
	}.print(format, out)
}

// moment is a time to the second, or never.
func moment(t time.Time) string {
	if t.IsZero() {
		return "never"
	}
	return t.UTC().Format(time.RFC3339)
}
