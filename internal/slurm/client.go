// Package slurm speaks with Slurm's REST daemon (slurmrestd, v0.0.38 to v0.0.43 and
// later of the same shape): it reads jobs and nodes, and drains and resumes nodes.
package slurm

import (
	"bytes"
	"context"
	"crypto/tls"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"
)

var (
	// ErrAuth says that the daemon does not accept the token.
	ErrAuth = errors.New("slurmrestd refuses the token")
	// ErrProtocol says that the answer is not what the API promises.
	ErrProtocol = errors.New("answer of slurmrestd is not understood")
	// ErrUnknownNode says that the controller has no such node.
	ErrUnknownNode = errors.New("slurm has no such node")
	// ErrRefused says that the controller did not do what was asked.
	ErrRefused = errors.New("slurm refused")
)

// Options says how to reach the daemon.
type Options struct {
	URL       string
	TokenFile string      // holds a JSON web token; read anew for each request
	User      string      // empty leaves it to the token
	Version   string      // such as v0.0.42; empty asks the daemon
	TLS       *tls.Config // nil trusts the system's authorities
	Timeout   time.Duration
	MaxBody   int64 // bounds an answer in bytes; 0 is 64 MiB, and 1 GiB of a list, which is not held
	// Scontrol is a command that changes nodes where slurmrestd cannot: before
	// v0.0.39 it only reads them.
	Scontrol *Scontrol
}

// CheckToken reads the file of a token; "" is none.
func CheckToken(file string) error {
	if file == "" {
		return nil
	}
	b, err := os.ReadFile(file)
	switch {
	case err != nil:
		return fmt.Errorf("token_file: %w", err)
	case strings.TrimSpace(string(b)) == "":
		return fmt.Errorf("token_file: %s is empty", file)
	}
	return nil
}

// Client is one daemon. Its methods may be called at the same time.
type Client struct {
	opt  Options
	most int64 // bytes of a list
	base string
	http *http.Client

	mu      sync.Mutex
	version string
	listed  time.Time // when all nodes were last asked for, for what one of them said
}

// New returns a client; it connects with the first request.
func New(o Options) *Client {
	most := o.MaxBody
	if o.MaxBody <= 0 {
		o.MaxBody, most = 64<<20, 1<<30
	}
	return &Client{
		opt: o, most: most, base: strings.TrimRight(o.URL, "/"), version: o.Version,
		http: &http.Client{
			Transport: &http.Transport{MaxIdleConnsPerHost: 1, MaxConnsPerHost: 2, TLSHandshakeTimeout: o.Timeout, TLSClientConfig: o.TLS},
			Timeout:   o.Timeout,
			// The token goes in a header of its own, which a redirect would carry anywhere.
			CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
		},
	}
}

// Close ends idle connections.
func (c *Client) Close() { c.http.CloseIdleConnections() }

// Version returns the API's version; the first call asks the daemon for the
// newest that it speaks.
func (c *Client) Version(ctx context.Context) (string, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.version == "" {
		v, err := c.detect(ctx)
		if err != nil {
			return "", err
		}
		c.version = v
	}
	return c.version, nil
}

// answer is what slurmrestd says beside what it was asked for, with status 200 too (openapi_resp of its document).
type answer struct {
	Errors []Error `json:"errors"`
}

// err is what an answer complains of: then what it lists may not be all, or not be so.
func (a answer) err() error {
	if len(a.Errors) == 0 {
		return nil
	}
	if slices.ContainsFunc(a.Errors, Error.refuses) {
		return fmt.Errorf("%w: %s", ErrRefused, a.Errors[0])
	}
	return fmt.Errorf("%w: %s", ErrProtocol, a.Errors[0])
}

// nodes are the nodes of an answer.
type nodes struct {
	answer
	Nodes []Node `json:"nodes"`
}

func (n nodes) find(name string) (Node, bool) {
	i := slices.IndexFunc(n.Nodes, func(n Node) bool { return n.Name == name })
	if i < 0 {
		return Node{}, false
	}
	return n.Nodes[i], true
}

// restAfter is how long the list of all nodes is not read again for what one of them says.
const restAfter = 10 * time.Second

// Node reads one node. One that is MIXED is asked for again after the list of all nodes was: of a node that is read
// alone, slurmctld 24.11 goes on telling the CPUs that were in use when somebody last read the list, so that a drain
// would never be seen to end.
func (c *Client) Node(ctx context.Context, name string) (Node, error) {
	n, err := c.node(ctx, name)
	if err != nil || !slices.Contains(n.States(), "MIXED") {
		return n, err
	}
	c.mu.Lock()
	due := time.Since(c.listed) >= restAfter
	if due {
		c.listed = time.Now()
	}
	c.mu.Unlock()
	if !due { // busy for a while longer does no harm
		return n, nil
	}
	if err := c.Get(ctx, "nodes", &struct{}{}); err != nil {
		return Node{}, err
	}
	return c.node(ctx, name)
}

func (c *Client) node(ctx context.Context, name string) (Node, error) {
	if err := named(name); err != nil {
		return Node{}, err
	}
	var one, all nodes
	err := c.Get(ctx, "node/"+url.PathEscape(name), &one)
	switch n, ok := one.find(name); {
	case err != nil && !errors.Is(err, ErrUnknownNode):
		return Node{}, err
	case ok && len(one.Errors) == 0:
		return n, nil
	case ok || len(one.Errors) > 0 && !slices.ContainsFunc(one.Errors, Error.noNode):
		return Node{}, fmt.Errorf("%w: node %s: %s", ErrProtocol, name, one.Errors[0])
	}
	// 24.11 says of a node that it does not know that reading it failed with "No error", which may be anything: the list
	// of all nodes, read without an error, decides.
	if err := c.Get(ctx, "nodes", &all); err != nil {
		return Node{}, err
	}
	switch n, ok := all.find(name); {
	case all.err() != nil:
		return Node{}, fmt.Errorf("%w: nodes: %s", ErrProtocol, all.Errors[0])
	case len(all.Nodes) == 0:
		return Node{}, fmt.Errorf("%w: it lists no nodes at all", ErrProtocol)
	case ok:
		return n, nil
	}
	return Node{}, fmt.Errorf("%s: %w", name, ErrUnknownNode)
}

// SetNode asks for a state of a node, DRAIN or RESUME, once; the reason goes with
// a drain. An error that wraps ErrRefused, ErrAuth or ErrUnknownNode means that
// nothing was done; after any other the outcome is not known.
func (c *Client) SetNode(ctx context.Context, name, state, reason string) error {
	if _, err := c.Node(ctx, name); err != nil {
		return fmt.Errorf("%w: %w", ErrRefused, err)
	}
	version, err := c.Version(ctx)
	if err != nil {
		return fmt.Errorf("%w: %w", ErrRefused, err)
	}
	if n, err := strconv.Atoi(version[strings.LastIndexByte(version, '.')+1:]); err == nil && n < 39 {
		if c.opt.Scontrol == nil {
			return fmt.Errorf("%w: this slurmrestd only reads nodes; set control.slurm.scontrol to the command that changes them", ErrRefused)
		}
		return c.opt.Scontrol.update(ctx, name, state, reason)
	}
	ask := map[string]any{"state": []string{state}}
	if reason != "" {
		ask["reason"] = reason
	}
	body, err := json.Marshal(ask)
	if err != nil {
		return err
	}
	b, err := c.do(ctx, http.MethodPost, "/slurm/"+version+"/node/"+url.PathEscape(name), body)
	if err != nil {
		return fmt.Errorf("set %s to %s: %w", name, state, err)
	}
	var says answer
	if err := json.Unmarshal(b, &says); err != nil {
		return fmt.Errorf("set %s to %s: %w: %w", name, state, ErrProtocol, err)
	}
	if err := says.err(); err != nil {
		return fmt.Errorf("set %s to %s: %w", name, state, err)
	}
	return nil
}

// apiPath is the path of a version in its document. The text before the version is looked for by itself, which is fast.
var apiPath = regexp.MustCompile(`"/slurm/(v0\.0\.(\d{2,3}))/jobs/?"`)

// detect asks which versions the daemon speaks and takes the newest.
func (c *Client) detect(ctx context.Context) (string, error) {
	var first error
	for _, path := range []string{"/openapi/v3", "/openapi"} {
		body, err := c.do(ctx, http.MethodGet, path, nil)
		if err != nil {
			if first == nil {
				first = err
			}
			continue
		}
		best, version := -1, ""
		body = bytes.ReplaceAll(body, []byte(`\/`), []byte("/")) // as slurmrestd writes it since 23.11
		for _, m := range apiPath.FindAllSubmatch(body, -1) {
			if n, err := strconv.Atoi(string(m[2])); err == nil && n > best {
				best, version = n, string(m[1])
			}
		}
		if version != "" {
			return version, nil
		}
	}
	for _, v := range []string{"v0.0.43", "v0.0.42", "v0.0.41", "v0.0.40", "v0.0.39", "v0.0.38"} {
		if _, err := c.do(ctx, http.MethodGet, "/slurm/"+v+"/ping", nil); err == nil {
			return v, nil
		} else if first == nil || errors.Is(err, ErrAuth) {
			first = err
		}
	}
	return "", fmt.Errorf("find the version of slurmrestd: %w", first)
}

// Get reads a path below the API's version, such as "nodes", into v.
func (c *Client) Get(ctx context.Context, path string, v any) error {
	version, err := c.Version(ctx)
	if err != nil {
		return err
	}
	body, err := c.do(ctx, http.MethodGet, "/slurm/"+version+"/"+path, nil)
	if err != nil {
		return err
	}
	if err := json.Unmarshal(body, v); err != nil {
		return fmt.Errorf("%w: %s%s: %w", ErrProtocol, c.base, path, err)
	}
	return nil
}

// do makes a request and reads its answer.
func (c *Client) do(ctx context.Context, method, path string, send []byte) ([]byte, error) {
	res, err := c.open(ctx, method, path, send)
	if err != nil {
		return nil, err
	}
	defer func() { _ = res.Body.Close() }()
	if res.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("%w: %s%s: %s", ErrProtocol, c.base, path, res.Status)
	}
	var buf bytes.Buffer
	n, err := buf.ReadFrom(io.LimitReader(res.Body, c.opt.MaxBody+1))
	if err != nil {
		return nil, fmt.Errorf("read %s: %w", path, err)
	}
	if n > c.opt.MaxBody {
		return nil, fmt.Errorf("%w: %s: answer is larger than %d bytes", ErrProtocol, path, c.opt.MaxBody)
	}
	return buf.Bytes(), nil
}

// open makes a request; who gets its answer, which has status 200 or 304, closes it.
func (c *Client) open(ctx context.Context, method, path string, send []byte) (*http.Response, error) {
	req, err := http.NewRequestWithContext(ctx, method, c.base+path, bytes.NewReader(send))
	if err != nil {
		return nil, fmt.Errorf("read %s: %w", path, err)
	}
	if c.opt.TokenFile != "" {
		token, err := os.ReadFile(c.opt.TokenFile)
		if err != nil {
			return nil, fmt.Errorf("read token_file: %w", err)
		}
		jwt := strings.TrimPrefix(strings.TrimSpace(string(token)), "SLURM_JWT=")
		req.Header.Set("X-SLURM-USER-TOKEN", jwt)
		if user := userOf(jwt); user != "" {
			req.Header.Set("X-SLURM-USER-NAME", user)
		}
	}
	if c.opt.User != "" {
		req.Header.Set("X-SLURM-USER-NAME", c.opt.User)
	}
	if send != nil {
		req.Header.Set("Content-Type", "application/json")
	}
	req.Header.Set("Accept", "application/json")
	res, err := c.http.Do(req)
	if err != nil {
		return nil, fmt.Errorf("read %s: %w", path, err)
	}
	if res.StatusCode == http.StatusOK || res.StatusCode == http.StatusNotModified {
		return res, nil
	}
	defer func() { _ = res.Body.Close() }()
	switch res.StatusCode {
	case http.StatusUnauthorized, http.StatusForbidden, http.StatusNetworkAuthenticationRequired:
		return nil, fmt.Errorf("%w: %s%s: %s", ErrAuth, c.base, path, res.Status)
	default: // since v0.0.40 most complaints come with one of 4xx or 5xx too
		var says answer
		b, _ := io.ReadAll(io.LimitReader(res.Body, 1<<20))
		switch {
		case json.Unmarshal(b, &says) != nil || len(says.Errors) == 0:
			return nil, fmt.Errorf("%w: %s%s: %s", ErrProtocol, c.base, path, res.Status)
		case method == http.MethodGet && slices.ContainsFunc(says.Errors, Error.noNode):
			return nil, fmt.Errorf("%w: %s%s: %s: %s", ErrUnknownNode, c.base, path, res.Status, says.Errors[0])
		case method == http.MethodGet:
			return nil, fmt.Errorf("%w: %s%s: %s: %s", ErrProtocol, c.base, path, res.Status, says.Errors[0])
		default:
			return nil, fmt.Errorf("%s%s: %s: %w", c.base, path, res.Status, says.err())
		}
	}
}

// userOf returns the user that a token names (claim "sun", Slurm's
// authentication plug-in auth/jwt); 22.05 wants it in a header of its own.
func userOf(jwt string) string {
	parts := strings.Split(jwt, ".")
	if len(parts) != 3 {
		return ""
	}
	payload, err := base64.RawURLEncoding.DecodeString(strings.TrimRight(parts[1], "="))
	if err != nil {
		return ""
	}
	var claims struct {
		Sun string `json:"sun"`
	}
	if json.Unmarshal(payload, &claims) != nil || strings.ContainsAny(claims.Sun, "\r\n") {
		return ""
	}
	return claims.Sun
}
