package oidc

import (
	"fmt"
	"maps"
	"net/url"
	"slices"
	"strings"
	"time"

	"auspex/internal/trust"
	"auspex/schemas"
)

// CallbackPath is where a login service sends browsers back to, below the address of the console.
const CallbackPath = "/api/v1/oidc/callback"

// Config says which login service lets people in, and what its groups may. Without an issuer
// there is none.
type Config struct {
	Issuer       string            `yaml:"issuer"`        // address of the login service, as its tokens name it
	ClientID     string            `yaml:"client_id"`     // that the login service knows the console by
	ClientSecret string            `yaml:"client_secret"` // name in the file of secrets, whose password it is; empty for a public client
	RedirectURL  string            `yaml:"redirect_url"`  // https://NAME/api/v1/oidc/callback, as the login service knows it
	Scopes       []string          `yaml:"scopes"`        // openid among them
	GroupsClaim  string            `yaml:"groups_claim"`  // claim with the groups of a user, with dots for one within another
	Roles        map[string]string `yaml:"roles"`         // role of each group; of several the highest counts, and without one nobody is let in
	Teams        map[string]string `yaml:"teams"`         // team of each group; membership follows the groups at each login
	Button       string            `yaml:"button"`        // what the login page calls the login service
	Bearer       string            `yaml:"bearer"`        // audience of tokens of the login service that the API takes; empty takes none
	ClockSkew    time.Duration     `yaml:"clock_skew"`    // between its clock and ours
	TLS          trust.TLS         `yaml:"tls"`           // to the login service
}

// DefaultConfig has no login service.
func DefaultConfig() Config {
	return Config{Scopes: []string{"openid", "profile", "email"}, GroupsClaim: "groups", Button: "single sign-on", ClockSkew: 30 * time.Second}
}

// On reports whether there is a login service.
func (c *Config) On() bool { return c.Issuer != "" }

// mostSkew bounds how early a token may come, and so how wrong a clock may be.
const mostSkew = 5 * time.Minute

// Validate names the key at fault.
func (c Config) Validate() error {
	if !c.On() {
		if c.ClientID != "" || len(c.Roles) > 0 {
			return fmt.Errorf("issuer: a login service needs its address")
		}
		return nil
	}
	if err := address("issuer", c.Issuer); err != nil {
		return err
	}
	if c.ClientID == "" {
		return fmt.Errorf("client_id: want the name that the login service knows the console by")
	}
	if err := address("redirect_url", c.RedirectURL); err != nil {
		return err
	}
	if !strings.HasSuffix(c.RedirectURL, CallbackPath) {
		return fmt.Errorf("redirect_url: want an address that ends with %s, got %q", CallbackPath, c.RedirectURL)
	}
	if !slices.Contains(c.Scopes, "openid") {
		return fmt.Errorf("scopes: want openid among them")
	}
	if c.GroupsClaim == "" {
		return fmt.Errorf("groups_claim: want the name of a claim")
	}
	if len(c.Roles) == 0 {
		return fmt.Errorf("roles: want the role of at least one group; without one nobody is let in")
	}
	for _, group := range slices.Sorted(maps.Keys(c.Roles)) {
		if !slices.Contains(schemas.Roles(), c.Roles[group]) {
			return fmt.Errorf("roles: group %q: want one of %s, got %q", group, strings.Join(schemas.Roles(), ", "), c.Roles[group])
		}
	}
	for _, group := range slices.Sorted(maps.Keys(c.Teams)) {
		if c.Teams[group] == "" {
			return fmt.Errorf("teams: group %q: want the name of a team", group)
		}
	}
	if c.Button == "" {
		return fmt.Errorf("button: want a name for the login service")
	}
	if c.ClockSkew < 0 || c.ClockSkew > mostSkew {
		return fmt.Errorf("clock_skew: want 0s to %s, got %s", mostSkew, c.ClockSkew)
	}
	return nil
}

// address checks that what goes to or comes from an address is not read on the way.
func address(key, text string) error {
	u, err := url.Parse(text)
	switch {
	case err != nil || u.Host == "" || u.Scheme != "https" && u.Scheme != "http":
		return fmt.Errorf("%s: want an https address, got %q", key, text)
	case u.User != nil || u.RawQuery != "" || u.Fragment != "":
		return fmt.Errorf("%s: want an address without a user, query or fragment", key)
	case u.Scheme == "http" && !local(u.Hostname()):
		return fmt.Errorf("%s: want https; http is for this machine alone", key)
	}
	return nil
}
