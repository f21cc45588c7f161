// Package oidc lets people in whom a login service knows (OpenID Connect Core 1.0): the
// authorization code flow with PKCE (RFC 7636) for browsers, and tokens of the login service for
// the API.
//
// What a login needs to be finished hangs on one secret, which the browser that began it keeps
// in a cookie: state, nonce and the verifier of PKCE follow from it, so that no process has to
// remember who began, and any of several may finish.
package oidc

import (
	"context"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/zitadel/oidc/v3/pkg/client"
	"github.com/zitadel/oidc/v3/pkg/client/rp"
	zoidc "github.com/zitadel/oidc/v3/pkg/oidc"
	"golang.org/x/oauth2"

	"auspex/internal/run"
	"auspex/internal/store/people"
)

// Why somebody is not let in.
var (
	ErrAway    = errors.New("the login service does not answer")
	ErrState   = errors.New("this browser did not begin the login, or too long ago")
	ErrRefused = errors.New("the login service refused the login")
	ErrToken   = errors.New("what the login service answered does not hold")
	ErrRole    = errors.New("no group of the user has a role here")
)

// Secrets knows the secret of the client.
type Secrets interface {
	Secret(ctx context.Context, ref string) (user, password string, err error)
}

// Provider is the login service. Until Run has found it, it is away.
type Provider struct {
	cfg     Config
	secrets Secrets
	log     *slog.Logger
	http    *http.Client
	found   atomic.Pointer[found]

	mu    sync.Mutex
	known map[[sha256.Size]byte]seen // tokens of callers that held

	failures *prometheus.CounterVec
}

// found is what the login service says of itself.
type found struct {
	oauth    oauth2.Config // without the secret
	userinfo string
	keys     *keySet
}

// Bounds of what is asked of a login service.
const (
	within    = 10 * time.Second
	maxAnswer = 1 << 20
	soonest   = time.Second
	latest    = time.Minute
	anew      = time.Hour // it is asked again what it says of itself
)

// New returns the login service of a configuration, which asks nobody before Run.
func New(cfg Config, secrets Secrets, log *slog.Logger, reg prometheus.Registerer) (*Provider, error) {
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	tls, err := cfg.TLS.Client()
	if err != nil {
		return nil, fmt.Errorf("tls: %w", err)
	}
	transport := http.DefaultTransport.(*http.Transport).Clone()
	transport.TLSClientConfig = tls
	p := &Provider{
		cfg: cfg, secrets: secrets, log: log, known: make(map[[sha256.Size]byte]seen),
		http: &http.Client{Transport: bounded{transport}, Timeout: within},
		failures: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "auspex_api_oidc_errors_total", Help: "Requests to the login service that failed, by what they were for.",
		}, []string{"step"}),
	}
	ready := prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "auspex_api_oidc_ready", Help: "Whether the login service has been found: 1, or 0.",
	}, func() float64 {
		if p.Ready() {
			return 1
		}
		return 0
	})
	for _, c := range []prometheus.Collector{p.failures, ready} {
		if err := reg.Register(c); err != nil {
			return nil, fmt.Errorf("register metrics: %w", err)
		}
	}
	return p, nil
}

// bounded reads no more of an answer than a login service has to say.
type bounded struct{ http.RoundTripper }

// RoundTrip implements http.RoundTripper.
func (b bounded) RoundTrip(r *http.Request) (*http.Response, error) {
	res, err := b.RoundTripper.RoundTrip(r)
	if err == nil {
		res.Body = struct {
			io.Reader
			io.Closer
		}{io.LimitReader(res.Body, maxAnswer), res.Body}
	}
	return res, err
}

func local(host string) bool {
	return host == "localhost" || net.ParseIP(host).IsLoopback()
}

// Ready reports whether the login service has been found.
func (p *Provider) Ready() bool { return p.found.Load() != nil }

// Button is what the login page calls it.
func (p *Provider) Button() string { return p.cfg.Button }

// Secure reports whether browsers reach the console by HTTPS.
func (p *Provider) Secure() bool { return strings.HasPrefix(p.cfg.RedirectURL, "https:") }

// Run looks for the login service until it has found it, and asks again once an hour. One that
// is away is told once.
func (p *Provider) Run(ctx context.Context) {
	defer p.http.CloseIdleConnections()
	told := false
	for wait := soonest; ; {
		err := p.discover(ctx)
		switch {
		case ctx.Err() != nil:
			return
		case err == nil && told:
			p.log.Info("the login service answers", "issuer", p.cfg.Issuer)
			told = false
		case err != nil && !told:
			p.log.Warn("cannot find the login service; it is tried again", "issuer", p.cfg.Issuer, "error", plain(err))
			told = true
		}
		pause := anew
		if err != nil {
			p.failures.WithLabelValues("discovery").Inc()
			pause, wait = wait, min(2*wait, latest)
		} else {
			wait = soonest
		}
		if run.Sleep(ctx, pause) != nil {
			return
		}
	}
}

func (p *Provider) discover(ctx context.Context) error {
	d, err := client.Discover(ctx, p.cfg.Issuer, p.http)
	if err != nil {
		return err
	}
	for name, text := range map[string]string{
		"authorization_endpoint": d.AuthorizationEndpoint, "token_endpoint": d.TokenEndpoint, "jwks_uri": d.JwksURI,
	} {
		if err := endpoint(name, text); err != nil {
			return err
		}
	}
	if d.UserinfoEndpoint != "" {
		if err := endpoint("userinfo_endpoint", d.UserinfoEndpoint); err != nil {
			return err
		}
	}
	f := &found{
		oauth: oauth2.Config{
			ClientID: p.cfg.ClientID, RedirectURL: p.cfg.RedirectURL, Scopes: p.cfg.Scopes,
			Endpoint: oauth2.Endpoint{AuthURL: d.AuthorizationEndpoint, TokenURL: d.TokenEndpoint},
		},
		userinfo: d.UserinfoEndpoint,
	}
	if old := p.found.Load(); old != nil && old.keys.url == d.JwksURI {
		f.keys = old.keys
	} else {
		f.keys = &keySet{url: d.JwksURI, http: p.http, now: time.Now, failed: func() { p.failures.WithLabelValues("keys").Inc() }}
	}
	p.found.Store(f)
	return nil
}

// endpoint is an address that may have a query, which that of an issuer may not.
func endpoint(name, text string) error {
	bare, _, _ := strings.Cut(text, "?")
	return address(name, bare)
}

// plain is an error without what a login service wrote into it.
func plain(err error) error {
	var remote *zoidc.Error
	var answer *oauth2.RetrieveError
	var net net.Error
	switch {
	case errors.As(err, &answer):
		return fmt.Errorf("it answered %d", answer.Response.StatusCode)
	case errors.As(err, &remote):
		return errors.New("it answered with an error")
	case errors.Is(err, zoidc.ErrIssuerInvalid):
		return errors.New("it calls itself by another issuer")
	case errors.As(err, &net):
		return err
	case errors.Is(err, zoidc.ErrDiscoveryFailed):
		return errors.New("it has no readable /.well-known/openid-configuration")
	}
	for _, known := range []error{
		zoidc.ErrAudience, zoidc.ErrAzpInvalid, zoidc.ErrAzpMissing, zoidc.ErrExpired, zoidc.ErrIatInFuture, zoidc.ErrIatMissing, zoidc.ErrNonceInvalid,
		zoidc.ErrSignatureUnsupportedAlg, zoidc.ErrSignatureInvalid, zoidc.ErrAtHash, zoidc.ErrSubjectMissing, errNotYet, rp.ErrUserInfoSubNotMatching, rp.ErrMissingIDToken,
	} {
		if errors.Is(err, known) {
			return known
		}
	}
	return errors.New("it is not readable")
}

// Begin returns the secret of a login that a browser has to keep, and where it goes with it.
func (p *Provider) Begin() (secret, target string, err error) {
	f := p.found.Load()
	if f == nil {
		return "", "", ErrAway
	}
	var b [32]byte
	_, _ = rand.Read(b[:]) // never fails
	secret = base64.RawURLEncoding.EncodeToString(b[:])
	return secret, f.oauth.AuthCodeURL(
		derive(secret, "state"), oauth2.SetAuthURLParam("nonce", derive(secret, "nonce")), oauth2.S256ChallengeOption(derive(secret, "verifier")),
	), nil
}

// derive returns what follows from the secret of a login for one use of it, and tells nothing of
// that for another.
func derive(secret, use string) string {
	m := hmac.New(sha256.New, []byte(secret))
	m.Write([]byte(use))
	return base64.RawURLEncoding.EncodeToString(m.Sum(nil))
}

// Callback is with what a browser comes back.
type Callback struct{ Code, State, Error string }

// Finish returns who a browser that has come back is of, by the secret that it kept.
func (p *Provider) Finish(ctx context.Context, secret string, back Callback) (*people.Statement, error) {
	if secret == "" || !hmac.Equal([]byte(back.State), []byte(derive(secret, "state"))) {
		return nil, ErrState
	}
	if back.Error != "" || back.Code == "" {
		return nil, ErrRefused
	}
	f := p.found.Load()
	if f == nil {
		return nil, ErrAway
	}
	oauth := f.oauth
	if p.cfg.ClientSecret != "" {
		var err error
		if _, oauth.ClientSecret, err = p.secrets.Secret(ctx, p.cfg.ClientSecret); err != nil {
			return nil, fmt.Errorf("api.oidc.client_secret: %w", err)
		}
	}
	ctx = context.WithValue(ctx, oauth2.HTTPClient, p.http)
	token, err := oauth.Exchange(ctx, back.Code, oauth2.VerifierOption(derive(secret, "verifier")))
	if err != nil {
		p.failures.WithLabelValues("exchange").Inc()
		var answer *oauth2.RetrieveError
		if errors.As(err, &answer) && answer.Response.StatusCode < http.StatusInternalServerError {
			return nil, fmt.Errorf("%w: %w", ErrRefused, plain(err))
		}
		return nil, fmt.Errorf("%w: %w", ErrAway, plain(err))
	}
	text, _ := token.Extra("id_token").(string)
	v := p.verifier(f, p.cfg.ClientID)
	v.Nonce = func(context.Context) string { return derive(secret, "nonce") }
	var c *claims
	if err = readable(text); err == nil {
		c, err = rp.VerifyTokens[*claims](ctx, token.AccessToken, text, v)
	}
	if err == nil {
		err = p.begun(c)
	}
	if err == nil && f.userinfo != "" && !p.complete(c) {
		err = p.ask(ctx, f, token.AccessToken, c)
	}
	if err != nil {
		p.failures.WithLabelValues("verification").Inc()
		return nil, fmt.Errorf("%w: %w", ErrToken, plain(err))
	}
	return p.statement(c)
}

// verifier checks tokens for an audience.
func (p *Provider) verifier(f *found, audience string) *rp.IDTokenVerifier {
	return &rp.IDTokenVerifier{
		// By the offset a token may come early; and the library ends it as much earlier, which is the safe side.
		Issuer: p.cfg.Issuer, ClientID: audience, KeySet: f.keys, Offset: p.cfg.ClockSkew, AZP: zoidc.DefaultAZPVerifier(audience),
		SupportedSignAlgs: algorithms,
	}
}

// algorithms are those with a public key: with one of a shared secret, a public key would be taken
// for the secret.
var algorithms = []string{"RS256", "RS384", "RS512", "ES256", "ES384", "ES512", "PS256", "PS384", "PS512", "EdDSA"}

// ask adds what the user info endpoint tells to claims (OpenID Connect Core 1.0, section 5.3): many
// login services leave names and groups out of tokens.
func (p *Provider) ask(ctx context.Context, f *found, token string, c *claims) error {
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, f.userinfo, http.NoBody)
	if err != nil {
		return err
	}
	r.Header.Set("Authorization", "Bearer "+token)
	more := &claims{}
	if err := fetch(p.http, r, more); err != nil {
		return err
	}
	if more.Subject != c.Subject {
		return rp.ErrUserInfoSubNotMatching
	}
	for name, v := range more.Claims {
		if _, ok := c.Claims[name]; !ok {
			c.Claims[name] = v
		}
	}
	return nil
}
