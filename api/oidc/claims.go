package oidc

import (
	"context"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/zitadel/oidc/v3/pkg/client/rp"
	zoidc "github.com/zitadel/oidc/v3/pkg/oidc"

	"auspex/internal/store/people"
	"auspex/schemas"
)

// claims are those of a token, whichever they are.
type claims struct {
	zoidc.TokenClaims
	AccessTokenHash string         `json:"at_hash"`
	Claims          map[string]any `json:"-"`
}

// GetAccessTokenHash implements oidc.IDClaims.
func (c *claims) GetAccessTokenHash() string { return c.AccessTokenHash }

// UnmarshalJSON implements json.Unmarshaler.
func (c *claims) UnmarshalJSON(b []byte) error {
	type known claims
	if err := json.Unmarshal(b, (*known)(c)); err != nil {
		return err
	}
	return json.Unmarshal(b, &c.Claims)
}

func (c *claims) text(name string) string {
	s, _ := c.Claims[name].(string)
	return s
}

// groups returns those of a claim, whose name may have dots of its own.
func (c *claims) groups(name string) (groups []string, ok bool) {
	v, ok := c.Claims[name]
	if !ok {
		at := c.Claims
		parts := strings.Split(name, ".")
		for i, part := range parts {
			if i == len(parts)-1 {
				v, ok = at[part]
			} else if at, _ = at[part].(map[string]any); at == nil {
				return nil, false
			}
		}
	}
	switch v := v.(type) {
	case string:
		return []string{v}, ok
	case []any:
		for _, g := range v {
			if s, is := g.(string); is {
				groups = append(groups, s)
			}
		}
	}
	return groups, ok
}

// complete reports whether nothing is missing that the user info endpoint may tell.
func (p *Provider) complete(c *claims) bool {
	_, ok := c.groups(p.cfg.GroupsClaim)
	return ok && c.text("email") != "" && c.text("preferred_username") != ""
}

var (
	errNotYet = errors.New("the token does not hold yet")

	names     = regexp.MustCompile(`^[A-Za-z0-9._@-]{1,64}$`)
	addresses = regexp.MustCompile(`^[^\s@]+@[^\s@]+$`)
)

// readable checks that a token has claims: the library follows a pointer to none where they are
// null.
func readable(token string) error {
	parts := strings.Split(token, ".")
	if len(parts) != 3 {
		return zoidc.ErrParse
	}
	b, err := base64.RawURLEncoding.DecodeString(parts[1])
	if err != nil || !strings.HasPrefix(strings.TrimLeft(string(b), " \t\r\n"), "{") {
		return zoidc.ErrParse
	}
	return nil
}

// begun checks the claim nbf, which the library does not (RFC 7519, section 4.1.5).
func (p *Provider) begun(c *claims) error {
	if nbf := c.NotBefore.AsTime(); !nbf.IsZero() && nbf.After(time.Now().Add(p.cfg.ClockSkew)) {
		return errNotYet
	}
	return nil
}

// statement is what claims say of somebody.
func (p *Provider) statement(c *claims) (*people.Statement, error) {
	groups, _ := c.groups(p.cfg.GroupsClaim)
	s := &people.Statement{Issuer: p.cfg.Issuer, Subject: c.Subject, At: c.IssuedAt.AsTime(), Email: c.text("email"), Teams: make(map[string]bool)}
	rank := -1
	for group, role := range p.cfg.Roles {
		if at := slices.Index(schemas.Roles(), role); at > rank && slices.Contains(groups, group) {
			rank, s.Role = at, role
		}
	}
	if rank < 0 {
		return nil, ErrRole
	}
	for group, team := range p.cfg.Teams {
		s.Teams[team] = s.Teams[team] || slices.Contains(groups, group)
	}
	for _, name := range []string{c.text("preferred_username"), s.Email} {
		if s.Username == "" && names.MatchString(name) {
			s.Username = name
		}
	}
	if s.Username == "" || len(s.Email) > 254 || !addresses.MatchString(s.Email) {
		s.Username, s.Email = "", "" // of whom is known already, none is needed
	}
	return s, nil
}

// seen is a token that held.
type seen struct {
	user    string
	expires time.Time
}

const (
	maxSeen  = 4096
	seenLong = 5 * time.Minute
)

// Takes reports whether a token is one that the login service may have made for the API.
func (p *Provider) Takes(token string) bool {
	return p.cfg.Bearer != "" && strings.Count(token, ".") == 2 && len(token) <= 16<<10
}

// User returns whose token it is: by what was found of it in the last minutes, or by what is
// stated by it, of which known says who that is. No user is a token that does not hold.
func (p *Provider) User(ctx context.Context, token string, known func(context.Context, *people.Statement) (id string, err error)) (string, error) {
	now := time.Now()
	h := sha256.Sum256([]byte(token))
	p.mu.Lock()
	s, ok := p.known[h]
	p.mu.Unlock()
	if ok && now.Before(s.expires) {
		return s.user, nil
	}
	f := p.found.Load()
	if f == nil {
		return "", ErrAway
	}
	v := p.verifier(f, p.cfg.Bearer)
	v.AZP = func(string) error { return nil } // made for the API, by whichever client
	var c *claims
	err := readable(token)
	if err == nil {
		c, err = rp.VerifyIDToken[*claims](ctx, token, v)
	}
	if err == nil {
		err = p.begun(c)
	}
	if err != nil {
		if errors.Is(err, errKeys) {
			return "", fmt.Errorf("%w: its keys are not there", ErrAway)
		}
		return "", fmt.Errorf("%w: %w", ErrToken, plain(err))
	}
	st, err := p.statement(c)
	if err != nil {
		return "", err
	}
	id, err := known(ctx, st)
	if err != nil {
		return "", err
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(p.known) >= maxSeen {
		clear(p.known)
	}
	until := now.Add(seenLong)
	if end := c.Expiration.AsTime().Add(-p.cfg.ClockSkew); end.Before(until) {
		until = end
	}
	p.known[h] = seen{id, until}
	return id, nil
}
