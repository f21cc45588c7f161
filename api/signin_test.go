package api_test

import (
	"bytes"
	"context"
	"crypto/rand"
	"crypto/rsa"
	"encoding/base64"
	"encoding/json"
	"errors"
	"io"
	"log/slog"
	"maps"
	"net"
	"net/http"
	"net/http/cookiejar"
	"net/http/httptest"
	"net/url"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	jose "github.com/go-jose/go-jose/v4"
	"github.com/zitadel/oidc/v3/example/server/exampleop"
	"github.com/zitadel/oidc/v3/example/server/storage"
	zoidc "github.com/zitadel/oidc/v3/pkg/oidc"
	"github.com/zitadel/oidc/v3/pkg/op"

	"auspex/api"
	"auspex/api/access"
	"auspex/internal/store/audit"
	"auspex/internal/store/people"
	"auspex/internal/waittest"
	"auspex/schemas"
)

const clientSecret = "a secret of the client"

// service is the example provider of zitadel/oidc, with groups, keys that change, and tests that
// may change what its token endpoint answers.
type service struct {
	*storage.Storage
	issuer string
	server *httptest.Server

	mu      sync.Mutex
	users   map[string]*storage.User
	groups  map[string][]string // by user
	key     signingKey
	tamper  func(s *service, header, claims map[string]any) string // "" leaves the ID token
	fetched int                                                    // of the keys
	last    string                                                 // ID token
}

type signingKey struct {
	id  string
	key *rsa.PrivateKey
}

func (k signingKey) SignatureAlgorithm() jose.SignatureAlgorithm { return jose.RS256 }
func (k signingKey) Key() any                                    { return k.key }
func (k signingKey) ID() string                                  { return k.id }

type publicKey struct{ signingKey }

func (k publicKey) Algorithm() jose.SignatureAlgorithm { return jose.RS256 }
func (k publicKey) Use() string                        { return "sig" }
func (k publicKey) Key() any                           { return &k.key.PublicKey }

func newKey(t testing.TB, id string) signingKey {
	t.Helper()
	key, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		t.Fatal(err)
	}
	return signingKey{id, key}
}

func (s *service) GetUserByID(id string) *storage.User {
	for _, u := range s.users {
		if u.ID == id {
			return u
		}
	}
	return nil
}
func (s *service) GetUserByUsername(name string) *storage.User { return s.users[name] }
func (s *service) ExampleClientID() string                     { return "service" }

// SigningKey implements op.Storage.
func (s *service) SigningKey(context.Context) (op.SigningKey, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.key, nil
}

// KeySet implements op.Storage.
func (s *service) KeySet(context.Context) ([]op.Key, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.fetched++
	return []op.Key{publicKey{s.key}}, nil
}

// SetUserinfoFromToken implements op.Storage.
func (s *service) SetUserinfoFromToken(ctx context.Context, info *zoidc.UserInfo, token, subject, origin string) error {
	if err := s.Storage.SetUserinfoFromToken(ctx, info, token, subject, origin); err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	info.AppendClaims("groups", s.groups[info.Subject])
	return nil
}

// sign makes a token with the service's key.
func (s *service) sign(claims map[string]any) string {
	s.mu.Lock()
	key := s.key
	s.mu.Unlock()
	return signed(jose.RS256, jose.JSONWebKey{Key: key.key, KeyID: key.id}, claims)
}

func signed(alg jose.SignatureAlgorithm, key any, claims map[string]any) string {
	signer, err := jose.NewSigner(jose.SigningKey{Algorithm: alg, Key: key}, nil)
	if err != nil {
		panic(err)
	}
	b, _ := json.Marshal(claims)
	jws, err := signer.Sign(b)
	if err != nil {
		panic(err)
	}
	text, _ := jws.CompactSerialize()
	return text
}

func part(text string) map[string]any {
	b, _ := base64.RawURLEncoding.DecodeString(text)
	var m map[string]any
	_ = json.Unmarshal(b, &m)
	return m
}

// newService listens before it serves, so that a console can be started while it is away.
func newService(t *testing.T, redirect string) *service {
	t.Helper()
	s := &service{groups: make(map[string][]string), key: newKey(t, "first"), users: map[string]*storage.User{
		"ada": {ID: "id-ada", Username: "ada", Password: "pw", Email: "ada@example.com", EmailVerified: true},
		"bob": {ID: "id-bob", Username: "bob", Password: "pw", Email: "bob@example.com", EmailVerified: true},
	}}
	s.Storage = storage.NewStorageWithClients(s, map[string]*storage.Client{"console": storage.WebClient("console", clientSecret, redirect)})
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s.issuer = "http://" + ln.Addr().String()
	provider := exampleop.SetupServer(s.issuer, s, slog.New(slog.DiscardHandler), false)
	s.server = &httptest.Server{Listener: ln, Config: &http.Server{ReadHeaderTimeout: time.Minute, Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != "/oauth/token" {
			provider.ServeHTTP(w, r)
			return
		}
		rec := httptest.NewRecorder()
		provider.ServeHTTP(rec, r)
		body := rec.Body.Bytes()
		var answer map[string]any
		s.mu.Lock()
		tamper := s.tamper
		s.mu.Unlock()
		if json.Unmarshal(body, &answer) == nil && rec.Code == http.StatusOK {
			parts := strings.Split(answer["id_token"].(string), ".")
			if tamper != nil {
				if text := tamper(s, part(parts[0]), part(parts[1])); text != "" {
					answer["id_token"] = text
				}
			}
			s.mu.Lock()
			s.last = answer["id_token"].(string)
			s.mu.Unlock()
			body, _ = json.Marshal(answer)
		}
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(rec.Code)
		_, _ = w.Write(body)
	})}}
	return s
}

func (s *service) start(t *testing.T) *service {
	s.server.Start()
	t.Cleanup(s.server.Close)
	return s
}

func (s *service) set(f func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	f()
}

type secretOf string

func (s secretOf) Secret(_ context.Context, ref string) (string, string, error) {
	if ref != "console-oidc" {
		return "", "", errors.New("no such credential")
	}
	return "", string(s), nil
}

// logBuffer is a log that may be read while it is written.
type logBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (l *logBuffer) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func (l *logBuffer) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}

// consoleWith starts a console that a login service lets people into. Its address is known before.
func consoleWith(t *testing.T, running bool, options ...option) (*world, *service, *logBuffer) {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0") // the redirect address has to be known to both
	if err != nil {
		t.Fatal(err)
	}
	address := ln.Addr().String()
	_ = ln.Close()
	s := newService(t, "http://"+address+"/api/v1/oidc/callback")
	if running {
		s.start(t)
	}
	log := &logBuffer{}
	w := start(t, false, append([]option{func(c *api.Config, d *api.Deps) {
		c.Listen = address
		c.OIDC.Issuer, c.OIDC.ClientID, c.OIDC.ClientSecret, c.OIDC.RedirectURL = s.issuer, "console", "console-oidc", "http://"+address+"/api/v1/oidc/callback"
		c.OIDC.Roles = map[string]string{"watch": schemas.RoleViewer, "ops": schemas.RoleOperator, "root": schemas.RoleAdmin}
		c.OIDC.Teams = map[string]string{"vision-people": "vision", "vision-leads": "vision", "speech-people": "speech"}
		c.OIDC.Button, c.OIDC.Bearer = "Example login", "auspex-api"
		d.Secrets, d.Log = secretOf(clientSecret), slog.New(slog.NewTextHandler(log, nil))
	}}, options...)...)
	if running {
		waittest.For(t, "the login service is found", func() bool { return methods(t, w).Ready })
	}
	return w, s, log
}

type method struct {
	Name  string
	Ready bool
}

func methods(t *testing.T, w *world) method {
	t.Helper()
	var m struct{ OIDC method }
	a := w.send(t, http.MethodGet, "api/v1/login-methods", "", nil)
	if err := json.Unmarshal(a.body, &m); err != nil || a.status != http.StatusOK {
		t.Fatalf("%d %s %v", a.status, a.body, err)
	}
	return m.OIDC
}

// visitor is a browser.
type visitor struct {
	*http.Client
	w *world
}

func (w *world) visitor(t *testing.T) *visitor {
	t.Helper()
	jar, err := cookiejar.New(nil)
	if err != nil {
		t.Fatal(err)
	}
	return &visitor{&http.Client{Jar: jar, Timeout: time.Minute, CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}, w}
}

func (p *visitor) get(t *testing.T, address string) *http.Response {
	t.Helper()
	return p.do(t, http.MethodGet, address, nil)
}

func (p *visitor) do(t *testing.T, method, address string, form url.Values) *http.Response {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), method, address, strings.NewReader(form.Encode()))
	if err != nil {
		t.Fatal(err)
	}
	if form != nil {
		req.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	}
	res, err := p.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	_, _ = io.Copy(io.Discard, res.Body)
	_ = res.Body.Close()
	return res
}

// walk goes from our login to the address that the login service sends the browser back to.
func (p *visitor) walk(t *testing.T, s *service, user, back string) string {
	t.Helper()
	res := p.get(t, p.w.base+"api/v1/oidc/login?return="+url.QueryEscape(back))
	if res.StatusCode != http.StatusFound || !strings.HasPrefix(res.Header.Get("Location"), s.issuer) {
		t.Fatalf("%d %s", res.StatusCode, res.Header.Get("Location"))
	}
	res = p.get(t, res.Header.Get("Location"))
	at, err := res.Location()
	if err != nil {
		t.Fatal(err)
	}
	res = p.do(t, http.MethodPost, s.issuer+"/login/username", url.Values{"id": {at.Query().Get("authRequestID")}, "username": {user}, "password": {"pw"}})
	if at, err = res.Location(); err != nil {
		t.Fatal(err, res.StatusCode)
	}
	res = p.get(t, at.String())
	if at, err = res.Location(); err != nil {
		t.Fatal(err, res.StatusCode)
	}
	return at.String()
}

// login returns where the browser is sent in the end.
func (p *visitor) login(t *testing.T, s *service, user string) string {
	t.Helper()
	return p.get(t, p.walk(t, s, user, "/fleet?by=rack")).Header.Get("Location")
}

// me is who the API takes a browser for.
func (p *visitor) me(t *testing.T) (name, role string, status int) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, p.w.base+"api/v1/me", http.NoBody)
	if err != nil {
		t.Fatal(err)
	}
	res, err := p.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = res.Body.Close() }()
	var m struct{ Name, Role string }
	_ = json.NewDecoder(res.Body).Decode(&m)
	return m.Name, m.Role, res.StatusCode
}

func auditOf(t *testing.T, w *world) (out []string) {
	t.Helper()
	rows, err := audit.New(w.db, time.Now).List(t.Context(), 0, 1000)
	if err != nil {
		t.Fatal(err)
	}
	for _, r := range rows {
		out = append(out, strings.Join([]string{r.Actor, r.Verb, r.Kind, r.Subject}, " "))
	}
	return out
}

// A login makes the user at first, and has role and teams follow the groups each time; what an admin
// decides counts at the next request.
func TestALoginServiceLetsPeopleIn(t *testing.T) {
	w, s, log := consoleWith(t, true)
	if _, err := people.New(w.db).CreateTeam(t.Context(), "root", schemas.Team{Name: "local"}); err != nil {
		t.Fatal(err)
	}
	s.set(func() { s.groups["id-ada"] = []string{"watch", "ops", "vision-people", "other"} })
	ada := w.visitor(t)
	if to := ada.login(t, s, "ada"); to != "/fleet?by=rack" {
		t.Fatalf("sent to %s\n%s", to, log)
	}
	if name, role, _ := ada.me(t); name != "ada" || role != schemas.RoleOperator {
		t.Errorf("%s is %s", name, role)
	}
	store := people.New(w.db)
	u, err := store.User(t.Context(), "ada")
	if err != nil || u.Email != "ada@example.com" || strings.Join(u.Teams, " ") != "vision" {
		t.Fatalf("%+v %v", u, err)
	}
	if _, err := store.UpdateTeam(t.Context(), "root", "local", 0, func(t *schemas.Team) { t.Members = []string{"ada"} }); err != nil {
		t.Fatal(err)
	}
	rows := auditOf(t, w)
	for _, want := range []string{"oidc create user ada", "oidc create team vision", "ada start session ada"} {
		if !slices.Contains(rows, want) {
			t.Errorf("no row %q in %v", want, rows)
		}
	}
	// The groups change: the role of the open session too, once she has logged in anywhere.
	s.set(func() { s.groups["id-ada"] = []string{"root", "speech-people"} })
	waitSecond(t)
	if to := w.visitor(t).login(t, s, "ada"); to != "/fleet?by=rack" {
		t.Fatal(to)
	}
	if _, role, _ := ada.me(t); role != schemas.RoleAdmin {
		t.Errorf("the first session is of a %s", role)
	}
	if u, _ = store.User(t.Context(), "ada"); strings.Join(u.Teams, " ") != "local speech" {
		t.Errorf("teams %v", u.Teams)
	}
	if rows = auditOf(t, w); !slices.Contains(rows, "oidc update user ada") || !slices.Contains(rows, "oidc update team vision") {
		t.Errorf("%v", rows)
	}
	// An admin sends her away.
	if a := w.send(t, http.MethodPut, "api/v1/users/ada", access.RoleAdmin, body(`{"status":"inactive"}`)); a.status != http.StatusOK {
		t.Fatalf("%d %s", a.status, a.body)
	}
	if _, _, status := ada.me(t); status != http.StatusUnauthorized {
		t.Errorf("an inactive user is answered %d", status)
	}
	if to := ada.login(t, s, "ada"); to != "/#login-error=inactive" {
		t.Errorf("an inactive user is sent to %s", to)
	}
	if _, _, status := ada.me(t); status != http.StatusUnauthorized {
		t.Errorf("and answered %d", status)
	}
	for _, secret := range []string{clientSecret, "code=", "state="} {
		if strings.Contains(log.String(), secret) {
			t.Errorf("%s is in the log:\n%s", secret, log)
		}
	}
}

// waitSecond lets the clock of tokens, which counts seconds, go on.
func waitSecond(t *testing.T) {
	t.Helper()
	began := time.Now().Unix()
	waittest.For(t, "the next second", func() bool { return time.Now().Unix() > began })
}

func TestALogoutEndsTheSession(t *testing.T) {
	w, s, _ := consoleWith(t, true)
	s.set(func() { s.groups["id-ada"] = []string{"watch"} })
	ada := w.visitor(t)
	ada.login(t, s, "ada")
	req, _ := http.NewRequestWithContext(t.Context(), http.MethodPost, w.base+"api/v1/logout", http.NoBody)
	req.Header.Set("Sec-Fetch-Site", "same-origin")
	at, _ := url.Parse(w.base)
	kept := ada.Jar.Cookies(at)
	res, err := ada.Do(req)
	if err != nil || res.StatusCode != http.StatusNoContent {
		t.Fatal(res, err)
	}
	_ = res.Body.Close()
	ada.Jar.SetCookies(at, kept)
	if _, _, status := ada.me(t); status != http.StatusUnauthorized {
		t.Errorf("after the logout: %d", status)
	}
}

// Who has a name or an address here already is not taken for the one who comes with it.
func TestALocalUserIsNotTakenOver(t *testing.T) {
	w, s, log := consoleWith(t, true)
	s.set(func() {
		s.groups["id-ada"], s.groups["id-bob"] = []string{"watch"}, []string{"watch"}
	})
	store := people.New(w.db)
	for _, u := range []schemas.User{{Username: "root", Email: "ADA@example.com"}, {Username: "Bob", Email: "b@example.com"}} {
		u.Role, u.Status = schemas.RoleAdmin, schemas.UserActive
		if _, err := store.CreateUser(t.Context(), "test", u); err != nil {
			t.Fatal(err)
		}
	}
	for _, name := range []string{"ada", "bob"} {
		p := w.visitor(t)
		if to := p.login(t, s, name); to != "/#login-error=other_user" {
			t.Errorf("%s is sent to %s\n%s", name, to, log)
		}
		if _, _, status := p.me(t); status != http.StatusUnauthorized {
			t.Errorf("%s is let in", name)
		}
	}
	if list, _, err := store.Users(t.Context(), people.Filter{Limit: 10}); err != nil || len(list) != 2 {
		t.Errorf("%v %v", list, err)
	}
}

// What a login service, or whoever speaks in its name, answers is not believed.
func TestWhatDoesNotHoldLetsNobodyIn(t *testing.T) {
	w, s, log := consoleWith(t, true)
	s.set(func() { s.groups["id-ada"] = []string{"root"} })
	other := newKey(t, "first")
	for name, tamper := range map[string]func(*service, map[string]any, map[string]any) string{
		"nonce":    func(s *service, _, c map[string]any) string { c["nonce"] = "another"; return s.sign(c) },
		"no nonce": func(s *service, _, c map[string]any) string { delete(c, "nonce"); return s.sign(c) },
		"audience": func(s *service, _, c map[string]any) string { c["aud"] = []string{"another"}; return s.sign(c) },
		"party": func(s *service, _, c map[string]any) string {
			c["aud"], c["azp"] = []string{"console", "x"}, "x"
			return s.sign(c)
		},
		"issuer": func(s *service, _, c map[string]any) string { c["iss"] = "http://127.0.0.1:1"; return s.sign(c) },
		"expired": func(s *service, _, c map[string]any) string {
			c["exp"] = time.Now().Add(-time.Minute).Unix()
			return s.sign(c)
		},
		"too early": func(s *service, _, c map[string]any) string {
			c["iat"] = time.Now().Add(time.Hour).Unix()
			return s.sign(c)
		},
		"not yet": func(s *service, _, c map[string]any) string {
			c["nbf"] = time.Now().Add(time.Hour).Unix()
			return s.sign(c)
		},
		"access hash": func(s *service, _, c map[string]any) string {
			c["at_hash"] = "AAAAAAAAAAAAAAAAAAAAAA"
			return s.sign(c)
		},
		"no subject": func(s *service, _, c map[string]any) string { delete(c, "sub"); return s.sign(c) },
		"subject":    func(s *service, _, c map[string]any) string { c["sub"] = "id-bob"; return s.sign(c) },
		"other key": func(_ *service, _, c map[string]any) string {
			return signed(jose.RS256, jose.JSONWebKey{Key: other.key, KeyID: "first"}, c)
		},
		"no key of ours": func(_ *service, _, c map[string]any) string {
			return signed(jose.RS256, jose.JSONWebKey{Key: other.key, KeyID: "unheard"}, c)
		},
		"shared secret": func(_ *service, _, c map[string]any) string {
			return signed(jose.HS256, []byte(clientSecret+"0123456789012345678901234567890"), c)
		},
		"none": func(_ *service, _, c map[string]any) string {
			b, _ := json.Marshal(c)
			return base64.RawURLEncoding.EncodeToString([]byte(`{"alg":"none"}`)) + "." + base64.RawURLEncoding.EncodeToString(b) + "."
		},
		"null":    func(*service, map[string]any, map[string]any) string { return "e30.bnVsbA.e30" },
		"a list":  func(*service, map[string]any, map[string]any) string { return "e30.W10.e30" },
		"garbage": func(*service, map[string]any, map[string]any) string { return "x" },
	} {
		s.set(func() { s.tamper = tamper })
		p := w.visitor(t)
		if to := p.login(t, s, "ada"); to != "/#login-error=token" {
			t.Errorf("%s: sent to %s", name, to)
		}
		if _, _, status := p.me(t); status != http.StatusUnauthorized {
			t.Errorf("%s: let in", name)
		}
	}
	s.set(func() { s.tamper = nil })
	if to := w.visitor(t).login(t, s, "ada"); to != "/fleet?by=rack" {
		t.Errorf("and then what holds: %s\n%s", to, log)
	}
	if list, _, _ := people.New(w.db).Users(t.Context(), people.Filter{Limit: 10}); len(list) != 1 {
		t.Errorf("%d users were made", len(list))
	}
}

func TestALoginIsFinishedByTheBrowserThatBeganIt(t *testing.T) {
	w, s, _ := consoleWith(t, true)
	s.set(func() { s.groups["id-ada"] = []string{"watch"} })
	ada, eve := w.visitor(t), w.visitor(t)
	back := ada.walk(t, s, "ada", "/")
	if to := eve.get(t, back).Header.Get("Location"); to != "/#login-error=state" {
		t.Errorf("another browser is sent to %s", to)
	}
	eve.walk(t, s, "bob", "/") // eve has a login of her own under way, and is given ada's answer
	if to := eve.get(t, back).Header.Get("Location"); to != "/#login-error=state" {
		t.Errorf("another browser with another login is sent to %s", to)
	}
	u, _ := url.Parse(back)
	q := u.Query()
	q.Set("state", q.Get("state")+"x")
	wrong := *u
	wrong.RawQuery = q.Encode()
	fresh := w.visitor(t)
	fresh.Jar.SetCookies(u, ada.Jar.Cookies(u))
	if to := fresh.get(t, wrong.String()).Header.Get("Location"); to != "/#login-error=state" {
		t.Errorf("another state is sent to %s", to)
	}
	cookies := ada.Jar.Cookies(u)
	if to := ada.get(t, back).Header.Get("Location"); to != "/" {
		t.Errorf("ada is sent to %s", to)
	}
	if to := ada.get(t, back).Header.Get("Location"); to != "/#login-error=state" {
		t.Errorf("the second time she is sent to %s", to)
	}
	thief := w.visitor(t) // has the cookie as well: the code is used
	thief.Jar.SetCookies(u, cookies)
	if to := thief.get(t, back).Header.Get("Location"); to != "/#login-error=refused" {
		t.Errorf("a used code is sent to %s", to)
	}
	bob := w.visitor(t)
	bob.get(t, w.base+"api/v1/oidc/login")
	login, _ := url.Parse(bob.get(t, w.base+"api/v1/oidc/login").Header.Get("Location"))
	to := bob.get(t, w.base+"api/v1/oidc/callback?error=access_denied&error_description=x&session_state=y&state="+login.Query().Get("state")).Header.Get("Location")
	if to != "/#login-error=refused" {
		t.Errorf("who is refused is sent to %s", to)
	}
	for _, name := range []string{"code_challenge", "nonce", "state"} {
		if login.Query().Get(name) == "" {
			t.Errorf("no %s is sent", name)
		}
	}
	if login.Query().Get("code_challenge_method") != "S256" {
		t.Error("the challenge is sent in the clear")
	}
}

func TestTheCookieOfALoginIsShortAndClosed(t *testing.T) {
	w, _, _ := consoleWith(t, true)
	a := w.send(t, http.MethodGet, "api/v1/oidc/login", "", nil)
	c, err := http.ParseSetCookie(a.header.Get("Set-Cookie"))
	if err != nil || !c.HttpOnly || c.SameSite != http.SameSiteLaxMode || c.Path != "/api/v1/oidc/" || time.Until(c.Expires) > 10*time.Minute {
		t.Errorf("%+v %v", c, err)
	}
	if secret, _, _ := strings.Cut(c.Value, "."); strings.Contains(a.header.Get("Location"), secret) {
		t.Error("the secret is in the address")
	}
}

func TestABrowserIsSentToNoOtherPlace(t *testing.T) {
	w, s, _ := consoleWith(t, true)
	s.set(func() { s.groups["id-ada"] = []string{"watch"} })
	for back, want := range map[string]string{
		"/incidents/i-1": "/incidents/i-1", "/fleet?by=temp": "/fleet?by=temp", "": "/", "fleet": "/", "//evil.example/": "/", `/\evil.example`: "/", `\\evil.example`: "/",
		"https://evil.example/": "/", "/%5cevil.example": "/", "/%2fevil.example": "/", "javascript:alert(1)": "/", "/\t/evil.example": "/", "/api/v1/logout": "/", "///evil.example": "/",
	} {
		p := w.visitor(t)
		if to := p.get(t, p.walk(t, s, "ada", back)).Header.Get("Location"); to != want {
			t.Errorf("%q: sent to %q, want %q", back, to, want)
		}
	}
}

func TestWithoutARoleNobodyIsMade(t *testing.T) {
	w, s, _ := consoleWith(t, true)
	p := w.visitor(t)
	if to := p.login(t, s, "bob"); to != "/#login-error=no_role" {
		t.Errorf("sent to %s", to)
	}
	s.set(func() { s.groups["id-bob"], s.users["bob"].Email = []string{"watch"}, "" })
	if to := p.login(t, s, "bob"); to != "/#login-error=no_name" {
		t.Errorf("sent to %s", to)
	}
	if list, _, _ := people.New(w.db).Users(t.Context(), people.Filter{Limit: 10}); len(list) != 0 {
		t.Errorf("%v", list)
	}
}

func TestKeysMayChange(t *testing.T) {
	w, s, log := consoleWith(t, true)
	s.set(func() { s.groups["id-ada"] = []string{"watch"} })
	if to := w.visitor(t).login(t, s, "ada"); to != "/fleet?by=rack" {
		t.Fatal(to)
	}
	key := newKey(t, "second")
	s.set(func() { s.key = key })
	began := time.Now()
	waittest.For(t, "a login by the new key", func() bool { return w.visitor(t).login(t, s, "ada") == "/fleet?by=rack" })
	t.Log("taken after", time.Since(began), log)
	s.set(func() {
		if s.fetched > 4 {
			t.Errorf("the keys were fetched %d times", s.fetched)
		}
	})
}

// A login service that is away when the console starts stops nothing, and is told.
func TestALoginServiceMayComeLater(t *testing.T) {
	w, s, log := consoleWith(t, false)
	s.set(func() { s.groups["id-ada"] = []string{"watch"} })
	if m := methods(t, w); m.Ready || m.Name != "Example login" {
		t.Errorf("%+v", m)
	}
	if to := w.visitor(t).get(t, w.base+"api/v1/oidc/login").Header.Get("Location"); to != "/#login-error=away" {
		t.Errorf("sent to %s", to)
	}
	s.start(t)
	waittest.For(t, "the login service is found", func() bool { return methods(t, w).Ready })
	if to := w.visitor(t).login(t, s, "ada"); to != "/fleet?by=rack" {
		t.Errorf("sent to %s", to)
	}
	if n := strings.Count(log.String(), "cannot find the login service"); n > 1 {
		t.Errorf("told %d times", n)
	}
}

// Callers of the API may come with a token that the login service made for it.
func TestTokensOfTheLoginServiceAreTaken(t *testing.T) {
	w, s, log := consoleWith(t, true)
	now := time.Now()
	good := map[string]any{
		"iss": s.issuer, "sub": "id-ci", "aud": []string{"auspex-api"}, "azp": "pipeline", "iat": now.Unix(), "exp": now.Add(time.Hour).Unix(),
		"preferred_username": "ci", "email": "ci@example.com", "groups": []string{"ops"},
	}
	with := func(change func(map[string]any)) string {
		c := maps.Clone(good)
		change(c)
		return s.sign(c)
	}
	ask := func(token string) answer {
		return w.send(t, http.MethodGet, "api/v1/me", "", func(r *http.Request) { r.Header.Set("Authorization", "Bearer "+token) })
	}
	first := with(func(map[string]any) {})
	if a := ask(first); a.status != http.StatusOK || !strings.Contains(string(a.body), `"name":"ci"`) || !strings.Contains(string(a.body), `"role":"operator"`) {
		t.Fatalf("%d %s\n%s", a.status, a.body, log)
	}
	if a := w.send(t, http.MethodPost, "api/v1/maintenance", "", func(r *http.Request) {
		body(`{"resources":["x"],"duration_seconds":60,"reason":"` + strings.Repeat("y", 5000) + `"}`)(r)
		r.Header.Set("Authorization", "Bearer "+first)
	}); a.status == http.StatusRequestEntityTooLarge {
		t.Error("a known caller is read no more of than a stranger")
	}
	if rows := auditOf(t, w); !slices.Contains(rows, "oidc create user ci") {
		t.Errorf("%v", rows)
	}
	other := newKey(t, "first")
	for name, tc := range map[string]struct {
		token  string
		status int
		code   string
	}{
		"audience": {with(func(c map[string]any) { c["aud"] = "console" }), 401, "login_needed"},
		"issuer":   {with(func(c map[string]any) { c["iss"] = "http://127.0.0.1:1" }), 401, "login_needed"},
		"expired":  {with(func(c map[string]any) { c["exp"] = now.Add(-time.Second).Unix() }), 401, "login_needed"},
		"no end":   {with(func(c map[string]any) { delete(c, "exp") }), 401, "login_needed"},
		"key":      {signed(jose.RS256, jose.JSONWebKey{Key: other.key, KeyID: "first"}, good), 401, "login_needed"},
		"null":     {"e30.bnVsbA.e30", 401, "login_needed"},
		"none":     {"eyJhbGciOiJub25lIn0." + strings.Split(first, ".")[1] + ".", 401, "login_needed"},
		"no role":  {with(func(c map[string]any) { c["groups"], c["sub"] = []string{}, "id-x" }), 403, "no_role"},
		"no name":  {with(func(c map[string]any) { c["sub"], c["email"] = "id-x", "" }), 403, "no_name"},
		"other":    {with(func(c map[string]any) { c["sub"] = "id-x" }), 403, "other_user"},
	} {
		if a := ask(tc.token); a.status != tc.status || a.problem(t).Code != tc.code {
			t.Errorf("%s: %d %s", name, a.status, a.body)
		}
	}
	// What was said before is no news: an old token gives no role back.
	if a := ask(with(func(c map[string]any) { c["groups"], c["iat"] = []string{"watch"}, now.Add(time.Second).Unix() })); !strings.Contains(string(a.body), `"role":"viewer"`) {
		t.Errorf("%d %s", a.status, a.body)
	}
	if a := ask(with(func(c map[string]any) { c["groups"] = []string{"root"} })); !strings.Contains(string(a.body), `"role":"viewer"`) {
		t.Errorf("an old token: %d %s", a.status, a.body)
	}
	if a := w.send(t, http.MethodPut, "api/v1/users/ci", access.RoleAdmin, body(`{"status":"inactive"}`)); a.status != http.StatusOK {
		t.Fatalf("%d %s", a.status, a.body)
	}
	if a := ask(first); a.status != http.StatusUnauthorized {
		t.Errorf("an inactive user: %d %s", a.status, a.body)
	}
	for _, row := range append(auditOf(t, w), log.String()) {
		if strings.Contains(row, first) || strings.Contains(row, strings.Split(first, ".")[2]) {
			t.Errorf("a token is written down: %s", row)
		}
	}
}

func TestWithoutALoginServiceThereIsNone(t *testing.T) {
	w := start(t, false)
	if m := methods(t, w); m != (method{}) {
		t.Errorf("%+v", m)
	}
	for _, path := range []string{"api/v1/oidc/login", "api/v1/oidc/callback"} {
		if a := w.send(t, http.MethodGet, path, "", nil); a.status != http.StatusNotFound {
			t.Errorf("%s: %d", path, a.status)
		}
	}
}
