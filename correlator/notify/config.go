package notify

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"os"
	"strings"
	"time"

	"auspex/internal/trust"
)

// Config says whom to tell about incidents, and how often.
type Config struct {
	Alertmanagers []Target `yaml:"alertmanagers"` // each gets everything; empty tells nobody
	// Resend is how often open incidents are sent again. Alertmanager takes an
	// alert that was not sent for four times as long for resolved.
	Resend time.Duration `yaml:"resend"`
	// ExternalURL is where people reach the user interface; alerts link to it.
	ExternalURL string `yaml:"external_url"`
	// KnownOnly leaves out incidents whose fault is unknown.
	KnownOnly bool `yaml:"known_only"`
}

// Target is an Alertmanager. Passwords and tokens come from files, which are
// read for each request.
type Target struct {
	URL             string        `yaml:"url"` // of its root, such as https://alerts:9093
	Timeout         time.Duration `yaml:"timeout"`
	Username        string        `yaml:"username"`
	PasswordFile    string        `yaml:"password_file"`
	BearerTokenFile string        `yaml:"bearer_token_file"`
	TLS             trust.TLS     `yaml:"tls"`
}

// DefaultConfig tells nobody.
func DefaultConfig() Config { return Config{Resend: time.Minute} }

// DefaultTarget is an Alertmanager that is asked without credentials.
func DefaultTarget(u string) Target { return Target{URL: u, Timeout: defaultTimeout} }

const defaultTimeout = 10 * time.Second

// Validate names the key at fault.
func (c Config) Validate() error {
	var errs []error
	if c.Resend < time.Second {
		errs = append(errs, fmt.Errorf("resend: %s is less than 1s", c.Resend))
	}
	if c.ExternalURL != "" {
		if err := checkURL(c.ExternalURL); err != nil {
			errs = append(errs, fmt.Errorf("external_url: %w", err))
		}
	}
	for i, t := range c.Alertmanagers {
		if err := t.Validate(); err != nil {
			errs = append(errs, fmt.Errorf("alertmanagers[%d]: %w", i, err))
		}
	}
	return errors.Join(errs...)
}

// Validate names the key at fault.
func (t Target) Validate() error {
	if err := checkURL(t.URL); err != nil {
		return fmt.Errorf("url: %w", err)
	}
	if t.Timeout < 0 {
		return fmt.Errorf("timeout: %s is negative", t.Timeout)
	}
	if (t.Username == "") != (t.PasswordFile == "") {
		return errors.New("username and password_file: one needs the other")
	}
	if t.Username != "" && t.BearerTokenFile != "" {
		return errors.New("bearer_token_file: not together with username")
	}
	if err := t.TLS.Validate(); err != nil {
		return fmt.Errorf("tls: %w", err)
	}
	return nil
}

func checkURL(s string) error {
	u, err := url.Parse(s)
	if err != nil {
		return err
	}
	if (u.Scheme != "http" && u.Scheme != "https") || u.Host == "" {
		return fmt.Errorf("%q is no http or https URL", s)
	}
	if u.User != nil {
		return errors.New("credentials belong in username and password_file")
	}
	return nil
}

// CheckFiles reads the certificates and keys that the configuration names.
func (c Config) CheckFiles() error {
	var errs []error
	for _, t := range c.Alertmanagers {
		_, err := t.client()
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}

// Try asks an Alertmanager for its state (API v2, GET /status), and changes nothing.
func (t Target) Try(ctx context.Context) error {
	c, err := t.client()
	if err != nil {
		return err
	}
	defer c.CloseIdleConnections()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, strings.TrimSuffix(t.URL, "/")+"/api/v2/status", nil)
	if err != nil {
		return err
	}
	if err := t.authorize(req); err != nil {
		return err
	}
	resp, err := c.Do(req)
	if err != nil {
		return err
	}
	_ = resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return fmt.Errorf("status %s", resp.Status)
	}
	return nil
}

// client builds the HTTP client of a target; it reads the TLS files.
func (t Target) client() (*http.Client, error) {
	cfg, err := t.TLS.Client()
	if err != nil {
		return nil, fmt.Errorf("tls of %s: %w", t.URL, err)
	}
	return &http.Client{
		Transport: &http.Transport{
			Proxy: http.ProxyFromEnvironment, TLSClientConfig: cfg, ForceAttemptHTTP2: true,
			MaxIdleConnsPerHost: 2, IdleConnTimeout: 2 * time.Minute,
		},
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}, nil
}

func (t Target) authorize(r *http.Request) error {
	switch {
	case t.Username != "":
		p, err := os.ReadFile(t.PasswordFile)
		if err != nil {
			return fmt.Errorf("read password: %w", err)
		}
		r.SetBasicAuth(t.Username, strings.TrimSpace(string(p)))
	case t.BearerTokenFile != "":
		b, err := os.ReadFile(t.BearerTokenFile)
		if err != nil {
			return fmt.Errorf("read bearer token: %w", err)
		}
		r.Header.Set("Authorization", "Bearer "+strings.TrimSpace(string(b)))
	}
	return nil
}
