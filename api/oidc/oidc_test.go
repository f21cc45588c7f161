package oidc

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"
	"time"

	"auspex/internal/trust"
)

func settings() Config {
	c := DefaultConfig()
	c.Issuer, c.ClientID, c.RedirectURL = "https://login.example", "console", "https://auspex.example"+CallbackPath
	c.Roles = map[string]string{"ops": "operator"}
	return c
}

func TestSettingsAreChecked(t *testing.T) {
	if err := DefaultConfig().Validate(); err != nil {
		t.Error(err)
	}
	if err := settings().Validate(); err != nil {
		t.Error(err)
	}
	for want, change := range map[string]func(*Config){
		"issuer: a":          func(c *Config) { c.Issuer = "" },
		"issuer: want https": func(c *Config) { c.Issuer = "http://login.example" },
		"issuer: want an a":  func(c *Config) { c.Issuer = "https://user:pw@login.example" },
		"issuer: want an h":  func(c *Config) { c.Issuer = "login.example" },
		"client_id: ":        func(c *Config) { c.ClientID = "" },
		"redirect_url: w":    func(c *Config) { c.RedirectURL = "https://auspex.example/" },
		"scopes: ":           func(c *Config) { c.Scopes = []string{"email"} },
		"groups_claim: ":     func(c *Config) { c.GroupsClaim = "" },
		"roles: want":        func(c *Config) { c.Roles = nil },
		`roles: group "ops"`: func(c *Config) { c.Roles["ops"] = "king" },
		`teams: group "x"`:   func(c *Config) { c.Teams = map[string]string{"x": ""} },
		"button: ":           func(c *Config) { c.Button = "" },
		"clock_skew: ":       func(c *Config) { c.ClockSkew = mostSkew + 1 },
	} {
		c := settings()
		change(&c)
		if err := c.Validate(); err == nil || !strings.HasPrefix(err.Error(), want) || strings.Contains(err.Error(), "pw@") {
			t.Errorf("%s%v", want, err)
		}
	}
	c := settings()
	c.TLS = trust.TLS{CAFile: "none.pem"}
	if _, err := New(c, nil, nil, nil); err == nil || !strings.HasPrefix(err.Error(), "tls: ") {
		t.Error(err)
	}
}

func TestGroupsAreFound(t *testing.T) {
	for _, c := range []struct {
		claims, name string
		want         []string
		ok           bool
	}{
		{`{"groups":["a","b"]}`, "groups", []string{"a", "b"}, true},
		{`{"groups":"a"}`, "groups", []string{"a"}, true},
		{`{"groups":[]}`, "groups", nil, true},
		{`{"groups":["a",1,null,{"x":1}]}`, "groups", []string{"a"}, true},
		{`{"groups":{"a":true}}`, "groups", nil, true},
		{`{}`, "groups", nil, false},
		{`{"realm_access":{"roles":["a"]}}`, "realm_access.roles", []string{"a"}, true},
		{`{"https://example.com/groups":["a"]}`, "https://example.com/groups", []string{"a"}, true},
		{`{"realm_access":["roles"]}`, "realm_access.roles", nil, false},
	} {
		var got claims
		if err := json.Unmarshal([]byte(c.claims), &got); err != nil {
			t.Fatal(err)
		}
		if groups, ok := got.groups(c.name); ok != c.ok || !slices.Equal(groups, c.want) {
			t.Errorf("%s of %s: %v %v", c.name, c.claims, groups, ok)
		}
	}
}

func TestWhatFollowsFromASecretTellsNothingOfTheRest(t *testing.T) {
	seen := map[string]bool{"s": true}
	for _, secret := range []string{"s", "t"} {
		for _, use := range []string{"state", "nonce", "verifier"} {
			v := derive(secret, use)
			if seen[v] || len(v) != 43 { // RFC 7636 asks 43 to 128 letters of a verifier
				t.Errorf("%s %s: %s", secret, use, v)
			}
			seen[v] = true
		}
	}
}

func FuzzTokensAreRead(f *testing.F) {
	for _, s := range []string{"", "a.b.c", "e30.bnVsbA.e30", "e30.e30.e30", "e30.W10.", "e30.IHt9.x"} {
		f.Add(s)
	}
	p := &Provider{cfg: settings()}
	p.cfg.Bearer = "api"
	p.known = map[[32]byte]seen{}
	p.found.Store(&found{keys: &keySet{now: func() time.Time { return time.Time{} }, failed: func() {}}})
	f.Fuzz(func(t *testing.T, token string) {
		if id, err := p.User(t.Context(), token, nil); err == nil {
			t.Errorf("%q is %s", token, id)
		}
	})
}
