// Package cli makes commands of the OpenAPI document: `servers list`, `users create`, `allocations
// get`. A route that the document has is a command; nothing is written by hand but `allocate` and
// `release`, which people type most, and `plan`, which asks several.
package cli

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/getkin/kin-openapi/openapi3"
	"github.com/spf13/cobra"

	"auspex/client"
)

// Environment variables that say where an Auspex is (config.Others).
const (
	EnvURL   = "AUSPEX_URL"
	EnvToken = "AUSPEX_TOKEN"      // a file is better: other programs of a user can read an environment
	EnvFile  = "AUSPEX_TOKEN_FILE" // file that holds the token alone
	EnvCA    = "AUSPEX_CA_FILE"
)

// options are the flags that all commands have.
type options struct {
	url, tokenFile, ca, data, output string
	environ                          []string
	stdin                            io.Reader
}

func (o *options) env(name string) string {
	for _, kv := range slices.Backward(o.environ) {
		if v, ok := strings.CutPrefix(kv, name+"="); ok {
			return v
		}
	}
	return ""
}

// connect finds out where to ask and as whom: flags, then the environment, then what an Auspex of
// this machine wrote into its data folder.
func (o *options) connect() (*client.Client, error) {
	c := client.Config{URL: first(o.url, o.env(EnvURL)), CA: first(o.ca, o.env(EnvCA))}
	switch file := first(o.tokenFile, o.env(EnvFile)); {
	case file != "":
		text, err := os.ReadFile(file)
		if err != nil {
			return nil, fmt.Errorf("read the token: %w", err)
		}
		c.Token = strings.TrimSpace(string(text))
	default:
		c.Token = o.env(EnvToken)
	}
	if c.URL == "" {
		var here struct{ URL, Token string }
		text, err := os.ReadFile(filepath.Join(o.data, "run.json"))
		if err == nil {
			err = json.Unmarshal(text, &here)
		}
		if err != nil {
			return nil, fmt.Errorf("where is Auspex? Set %s and %s, or start one here: %w", EnvURL, EnvFile, err)
		}
		c.URL = here.URL
		if c.Token == "" {
			c.Token = here.Token
		}
	}
	return client.New(c)
}

func first(all ...string) string {
	for _, v := range all {
		if v != "" {
			return v
		}
	}
	return ""
}

func (o *options) flags(c *cobra.Command) {
	f := c.PersistentFlags()
	f.StringVar(&o.url, "api", "", "`address` of Auspex (default $"+EnvURL+", or the one of the data folder)")
	f.StringVar(&o.tokenFile, "token-file", "", "`file` with the token (default $"+EnvFile+" or $"+EnvToken+")")
	f.StringVar(&o.ca, "ca-file", "", "`file` of certificates that Auspex is trusted by (default $"+EnvCA+", or those of the system)")
	f.StringVar(&o.data, "data-dir", ".auspex", "data `folder` of an Auspex on this machine")
	f.StringVarP(&o.output, "output", "o", "table", "table, json or yaml")
	_ = c.RegisterFlagCompletionFunc("output", cobra.FixedCompletions([]string{"table", "json", "yaml"}, cobra.ShellCompDirectiveNoFileComp))
}

// Group is the id of the commands in a help text, so that they stand apart.
const Group = "api"

// Commands makes the commands of a document. Names that taken has are left out: an older command
// of the program has them.
func Commands(document []byte, environ []string, stdin io.Reader, taken func(name string) bool) ([]*cobra.Command, error) {
	doc, err := openapi3.NewLoader().LoadFromData(document)
	if err != nil {
		return nil, fmt.Errorf("read the OpenAPI document: %w", err)
	}
	o := &options{environ: environ, stdin: stdin}
	groups := make(map[string]*cobra.Command)
	for _, path := range slices.Sorted(slices.Values(doc.Paths.InMatchingOrder())) {
		parts := strings.Split(strings.Trim(path, "/"), "/")
		group := parts[0]
		if taken(group) || group == "stream" || group == "login" || group == "logout" {
			continue
		}
		item := doc.Paths.Value(path)
		for _, method := range []string{http.MethodGet, http.MethodPost, http.MethodPut, http.MethodDelete} {
			op := item.GetOperation(method)
			if op == nil {
				continue
			}
			g := groups[group]
			if g == nil {
				g = &cobra.Command{
					Use: group, Short: "Ask Auspex about " + strings.ReplaceAll(group, "-", " "), GroupID: Group,
					RunE: func(c *cobra.Command, _ []string) error { return c.Help() },
				}
				o.flags(g)
				groups[group] = g
			}
			one := &route{options: o, doc: doc, path: path, parts: parts, method: method, op: op}
			g.AddCommand(one.command())
		}
	}
	var out []*cobra.Command
	for _, name := range sortedKeys(groups) {
		out = append(out, groups[name])
	}
	for _, c := range []*cobra.Command{o.allocate(), o.release(), o.plan()} {
		if !taken(c.Name()) {
			c.GroupID = Group
			o.flags(c)
			out = append(out, c)
		}
	}
	return out, nil
}

func sortedKeys[T any](m map[string]T) []string {
	out := make([]string, 0, len(m))
	for k := range m {
		out = append(out, k)
	}
	slices.Sort(out)
	return out
}

func isParam(part string) bool { return strings.HasPrefix(part, "{") }

// route is a route of the document as a command.
type route struct {
	*options
	doc    *openapi3.T
	path   string
	parts  []string
	method string
	op     *openapi3.Operation
}

// name is what a route is called within its group: list, get, create, update, delete, or what
// stands after the id, with its verb where it is a list of its own.
func (r *route) name() string {
	verb := map[string]string{http.MethodGet: "get", http.MethodPost: "create", http.MethodPut: "update", http.MethodDelete: "delete"}[r.method]
	last := r.parts[len(r.parts)-1]
	switch {
	case r.method == http.MethodGet && r.answers("items") && !isParam(last): // else it is one that has items
		verb = "list"
	case r.method == http.MethodPost && isParam(last):
		verb = "decide"
	}
	var rest []string
	for _, p := range r.parts[1:] {
		if !isParam(p) {
			rest = append(rest, p)
		}
	}
	name := strings.Join(rest, "-")
	switch {
	case last == "{verb}":
		return "decide"
	case name == "":
		return verb
	case r.method == http.MethodGet:
		return name
	case r.method == http.MethodPost && r.doc.Paths.Value(r.path).Get == nil:
		return name // it does something
	}
	return verb + "-" + name
}

// answer is the schema of a success.
func (r *route) answer() *openapi3.Schema {
	for _, code := range []string{"200", "201", "202"} {
		res := r.op.Responses.Value(code)
		if res == nil || res.Value == nil {
			continue
		}
		if m := res.Value.Content.Get("application/json"); m != nil && m.Schema != nil {
			return m.Schema.Value
		}
	}
	return nil
}

func (r *route) answers(property string) bool {
	s := r.answer()
	return s != nil && s.Properties[property] != nil
}

func (r *route) command() *cobra.Command {
	var params []string
	for _, p := range r.parts {
		if isParam(p) {
			params = append(params, strings.Trim(p, "{}"))
		}
	}
	use := strings.TrimSpace(r.name() + " " + strings.ToUpper(strings.Join(params, " ")))
	c := &cobra.Command{
		Use: use, Short: r.op.Summary, Long: strings.TrimSpace(r.op.Summary + ".\n\n" + r.op.Description), Args: cobra.ExactArgs(len(params)),
	}
	query := r.query(c)
	body := r.body(c)
	r.offers(c)
	var pages bool
	if r.answers("items") && r.answers("next") {
		c.Flags().BoolVar(&pages, "all", false, "all pages")
	}
	if len(params) > 0 {
		c.ValidArgsFunction = r.complete(params)
	}
	c.RunE = func(cmd *cobra.Command, args []string) error {
		api, err := r.connect()
		if err != nil {
			return err
		}
		req := client.Request{Method: r.method, Path: r.fill(args), Query: query(cmd), Once: r.takes("Idempotency-Key")}
		if req.Body, err = body(cmd); err != nil {
			return err
		}
		var raw json.RawMessage
		if pages {
			raw, err = whole(cmd.Context(), api, req)
		} else {
			err = api.Do(cmd.Context(), req, &raw)
		}
		if err != nil {
			return explain(err)
		}
		return r.print(cmd.OutOrStdout(), cmd.ErrOrStderr(), r.answer(), raw)
	}
	return c
}

// whole is a list with all of its pages as one.
func whole(ctx context.Context, api *client.Client, req client.Request) (json.RawMessage, error) {
	all := []json.RawMessage{}
	for item, err := range client.All[json.RawMessage](ctx, api, req.Path, req.Query) {
		if err != nil {
			return nil, err
		}
		all = append(all, item)
	}
	return json.Marshal(map[string]any{"items": all})
}

// fill puts arguments into the path.
func (r *route) fill(args []string) string {
	out := make([]string, len(r.parts))
	n := 0
	for i, p := range r.parts {
		if out[i] = p; isParam(p) {
			out[i] = url.PathEscape(args[n])
			n++
		}
	}
	return strings.Join(out, "/")
}

func (r *route) takes(header string) bool {
	for _, p := range r.op.Parameters {
		if p.Value.In == openapi3.ParameterInHeader && p.Value.Name == header {
			return true
		}
	}
	return false
}

// complete offers what the server has for the first parameter, by name.
func (r *route) complete(params []string) cobra.CompletionFunc {
	return func(cmd *cobra.Command, args []string, typed string) ([]string, cobra.ShellCompDirective) {
		list := r.doc.Paths.Value("/" + r.parts[0])
		if len(args) > 0 || list == nil || list.Get == nil || params[0] == "verb" {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		return r.offer(r.parts[0], nil, params[0])(cmd, args, typed)
	}
}

// offer completes with what a list of the server has: by the field key of its items, or where that is their id
// or not there, by their name.
func (o *options) offer(list string, query url.Values, key string) cobra.CompletionFunc {
	names := []string{"name", "username", "id"}
	if key != "id" {
		names = slices.Insert(names, 0, key)
	}
	return func(cmd *cobra.Command, _ []string, typed string) ([]string, cobra.ShellCompDirective) {
		api, err := o.connect()
		if err != nil {
			return nil, cobra.ShellCompDirectiveError
		}
		asked := url.Values{"limit": {"200"}}
		maps.Copy(asked, query)
		var page struct{ Items []map[string]any }
		if err := api.Do(cmd.Context(), client.Request{Method: http.MethodGet, Path: list, Query: asked}, &page); err != nil {
			return nil, cobra.ShellCompDirectiveError
		}
		var out []string
		for _, item := range page.Items {
			for _, name := range names {
				text, ok := item[name].(string)
				if !ok {
					continue
				}
				if strings.HasPrefix(text, typed) {
					out = append(out, text)
				}
				break
			}
		}
		return out, cobra.ShellCompDirectiveNoFileComp
	}
}

// offers completes flags of a command with what the server has: one that takes a pool with its pools.
func (o *options) offers(c *cobra.Command) {
	for flag, list := range map[string]string{
		"pool": "pools", "wish.pool": "pools", "team": "teams", "user": "users", "user-id": "users", "server": "servers", "server-id": "servers", "server-ids": "servers",
		"gpu-ids": "gpus", "allocation": "allocations", "allocation-id": "allocations",
	} {
		if c.Flags().Lookup(flag) != nil {
			_ = c.RegisterFlagCompletionFunc(flag, o.offer(list, nil, "id"))
		}
	}
}

// explain adds the fields at fault to what a server says.
func explain(err error) error {
	var p *client.Problem
	if !errors.As(err, &p) {
		return err
	}
	return fmt.Errorf("%w (%s)", p, first(p.Code, fmt.Sprintf("HTTP %d", p.Status)))
}
