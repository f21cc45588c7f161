package e2e

import (
	"bytes"
	"compress/gzip"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"auspex/internal/certtest"
)

// TestAttacks tries the doors of a running product from outside: each subtest is
// a door, and fails where it is open. test/attacks.sh runs it alone.
func TestAttacks(t *testing.T) {
	whole(t)
	dir := dataDir(t)
	if err := os.Chmod(dir, 0o755); err != nil { // a folder that was there before
		t.Fatal(err)
	}
	old := syscall.Umask(0)
	p := launch(t, dir, "--demo", "--set", "store.clickhouse=off")
	syscall.Umask(old)
	p.ready()
	p.await("some telemetry", func() error {
		var b []byte
		if err := p.get("prometheus/api/v1/query?query=count(%7B__name__%3D~%22.%2B%22%7D)%20%3E%205000", &b); err != nil {
			return err
		}
		return has(string(b), `"value"`)
	})
	token := func(name, role string) string {
		t.Helper()
		out, err := command(t, "token", "create", name, "--role", role, "--data", dir).Output()
		if err != nil {
			t.Fatalf("token create: %v", err)
		}
		return strings.TrimSpace(string(out))
	}
	a := &attacker{t: t, p: p, admin: token("attack-admin", "admin"), operator: token("attack-operator", "operator"), viewer: token("attack-viewer", "viewer")}
	for _, door := range []struct {
		name string
		try  func(*testing.T, *attacker)
	}{
		{"bodies that unpack before login", unpackBeforeLogin},
		{"bodies that unpack after login", unpackAfterLogin},
		{"large bodies before login", largeBeforeLogin},
		{"queries that cost too much", dearQueries},
		{"queries whose caller has left", abandonedQueries},
		{"one caller in everybody's way", greedyCaller},
		{"reload without a token", reloadWithoutToken},
		{"names and origins that are not ours", foreignNames},
		{"files that others may read", readableFiles},
		{"tokens after they were revoked", revokedTokens},
		{"guessing that locks others out", guessing},
		{"rights that a role does not have", roles},
		{"paths out of the pages", paths},
		{"bytes that are no request", garbage},
		{"requests with two ends", twoEnds},
		{"files that unpack without end", bombsForCommands},
		{"inventories that take themselves away", emptyInventories},
	} {
		began, tried := time.Now(), false
		ok := t.Run(door.name, func(t *testing.T) {
			a.t, p.t, tried = t, t, true // the door is what fails
			door.try(t, a)
			select {
			case <-p.done:
				t.Fatalf("the product ended: %v", *p.exit)
			default:
			}
		})
		state := "shut"
		if !ok {
			state = "OPEN"
		}
		p.t = t
		if !tried { // not asked for
			continue
		}
		fmt.Printf("door %s: %s (%.1f s)\n", state, door.name, time.Since(began).Seconds())
	}
	p.interrupt()
}

// attacker sends requests to the product.
type attacker struct {
	t                       *testing.T
	p                       *product
	admin, operator, viewer string
}

type reply struct {
	status int
	header http.Header
	body   []byte
	took   time.Duration
}

func (a *attacker) send(method, path, token string, body io.Reader, header ...string) reply {
	a.t.Helper()
	ctx, cancel := context.WithTimeout(a.t.Context(), 2*time.Minute)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, method, a.p.url+path, body)
	if err != nil {
		a.t.Fatal(err)
	}
	if token != "" {
		req.Header.Set("Authorization", "Bearer "+token)
	}
	for k := 0; k+1 < len(header); k += 2 {
		if header[k] == "Host" {
			req.Host = header[k+1]
			continue
		}
		req.Header.Add(header[k], header[k+1])
	}
	began := time.Now()
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		return reply{took: time.Since(began)}
	}
	defer func() { _ = res.Body.Close() }()
	b, _ := io.ReadAll(res.Body)
	return reply{res.StatusCode, res.Header, b, time.Since(began)}
}

func (a *attacker) want(r reply, statuses ...int) {
	a.t.Helper()
	if slices.Contains(statuses, r.status) {
		return
	}
	a.t.Errorf("status %d, want %v: %.200s", r.status, statuses, r.body)
}

// resident is the memory of the product, in MiB, and cpu its processor time.
func (a *attacker) resident() int {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/statm", a.p.cmd.Process.Pid))
	if err != nil {
		a.t.Fatal(err)
	}
	pages, err := strconv.Atoi(strings.Fields(string(b))[1])
	if err != nil {
		a.t.Fatal(err)
	}
	return pages * os.Getpagesize() >> 20
}

func (a *attacker) cpu() time.Duration {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", a.p.cmd.Process.Pid))
	if err != nil {
		a.t.Fatal(err)
	}
	f := strings.Fields(string(b[bytes.LastIndexByte(b, ')')+1:]))
	user, _ := strconv.Atoi(f[11])
	system, _ := strconv.Atoi(f[12])
	return time.Duration(user+system) * time.Second / 100 // proc(5): clock ticks, 100 a second
}

// spending fails where what is done takes more of the product's memory or
// processor time than that.
func (a *attacker) spending(mib int, cpu time.Duration, do func()) {
	a.t.Helper()
	memory, busy, began := a.resident(), a.cpu(), time.Now()
	stop, most := make(chan struct{}), make(chan int)
	go func() {
		peak := memory
		for {
			select {
			case <-stop:
				most <- peak
				return
			case <-time.After(20 * time.Millisecond):
				peak = max(peak, a.resident())
			}
		}
	}()
	do()
	close(stop)
	usual := time.Since(began) / 2 // what the demo itself may take meanwhile
	if grown := <-most - memory; grown > mib {
		a.t.Errorf("took %d MiB", grown)
	}
	if used := a.cpu() - busy - usual; used > cpu {
		a.t.Errorf("took %s of the processor", used)
	}
}

func packAgain(t *testing.T, text []byte) []byte {
	t.Helper()
	var b bytes.Buffer
	z := gzip.NewWriter(&b)
	if _, err := z.Write(text); err != nil {
		t.Fatal(err)
	}
	if err := z.Close(); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

func unpackBeforeLogin(t *testing.T, a *attacker) {
	once := certtest.Bomb(t, 4<<30)
	twice := packAgain(t, once)
	a.spending(64, 2*time.Second, func() {
		for _, path := range []string{"api/v1/login", "api/v1/tokens", "prometheus/api/v1/query", "metrics"} {
			for _, coding := range []string{"gzip, gzip", "gzip,gzip,gzip", "deflate", "br", "zstd", "x-unknown"} {
				a.want(
					a.send("POST", path, "", bytes.NewReader(packAgain(t, twice)), "Content-Encoding", coding, "Content-Type", "application/json"), 413,
					415,
				)
			}
		}
		a.want(
			a.send(
				"POST", "api/v1/login", "", bytes.NewReader(packAgain(t, []byte(`{"code":"x"}`))), "Content-Encoding", "gzip", "Content-Type",
				"application/json",
			),
			415,
		)
	})
}

func unpackAfterLogin(t *testing.T, a *attacker) {
	once := certtest.Bomb(t, 256<<20)
	a.spending(96, 3*time.Second, func() {
		for range 4 {
			a.want(
				a.send("POST", "api/v1/tokens", a.admin, bytes.NewReader(once), "Content-Encoding", "gzip", "Content-Type", "application/json"), 413,
			)
			a.want(
				a.send(
					"POST", "prometheus/api/v1/query", a.viewer, bytes.NewReader(once), "Content-Encoding", "gzip", "Content-Type",
					"application/x-www-form-urlencoded",
				),
				413,
			)
		}
		a.want(a.send("POST", "api/v1/tokens", a.admin, bytes.NewReader(packAgain(t, once)), "Content-Encoding", "gzip, gzip"), 415)
	})
}

func largeBeforeLogin(t *testing.T, a *attacker) {
	large := bytes.Repeat([]byte("x"), 1<<20)
	a.spending(64, 2*time.Second, func() {
		for _, path := range []string{"api/v1/login", "api/v1/tokens", "prometheus/api/v1/query", "-/reload"} {
			a.want(a.send("POST", path, "", bytes.NewReader(large)), 413)
			a.want(a.send("POST", path, "guess", bytes.NewReader(large)), 413)
		}
		form := "--x\r\nContent-Disposition: form-data; name=\"f\"; filename=\"f\"\r\n\r\n" + strings.Repeat("x", 900<<10) + "\r\n--x--\r\n"
		a.want(a.send("POST", "api/v1/login", "", strings.NewReader(form), "Content-Type", "multipart/form-data; boundary=x"), 413)
	})
}

func promQL(query string, more ...string) io.Reader {
	v := url.Values{"query": {query}}
	for k := 0; k+1 < len(more); k += 2 {
		v.Set(more[k], more[k+1])
	}
	return strings.NewReader(v.Encode())
}

const form = "application/x-www-form-urlencoded"

func dearQueries(_ *testing.T, a *attacker) {
	now := time.Now().Unix()
	at := func(s int64) string { return strconv.FormatInt(now+s, 10) }
	for name, q := range map[string]io.Reader{
		"query?1": promQL(`count(count_over_time({__name__=~".+"}[6h:1ms]))`),
		"query?2": promQL(strings.Repeat("(", 50_000) + "1" + strings.Repeat(")", 50_000)),
		"query?3": promQL(strings.Repeat("-", 50_000) + "1"),
		"query?4": promQL(strings.Repeat("1+", 30_000) + "1"),
		"query?5": promQL(strings.Repeat("a or ", 12_000) + "a"),
		"query?6": promQL(`{__name__=~".+"}[6h]`),
		"query?7": promQL(strings.Repeat("label_replace(", 4) + `{__name__=~".+"}` + // labels that multiply
			`,"a","` + strings.Repeat("$1", 10) + `","__name__","(.*)")` +
			strings.Repeat(`,"a","`+strings.Repeat("$1", 10)+`","a","(.*)")`, 3)),
		"query?8":       promQL(`label_replace({__name__=~".+"},"a","` + strings.Repeat("x", 60_000) + `","","")`),
		"query_range?1": promQL(`{__name__=~".+"}`, "start", at(-3600), "end", at(0), "step", "0.5"),
		"query_range?2": promQL(`{__name__=~".+"}`, "start", at(-3600), "end", at(0), "step", "1e-9"),
		"query_range?3": promQL(`sum(rate({__name__=~".+"}[6h]))`, "start", at(-5400), "end", at(0), "step", "0.5"),
		"query_range?4": promQL(`1`, "start", "-9e15", "end", "9e15", "step", "1"),
		"format_query":  promQL(strings.Repeat("(", 50_000) + "1" + strings.Repeat(")", 50_000)),
		"parse_query":   promQL(strings.Repeat("abs(", 10_000) + "1" + strings.Repeat(")", 10_000)),
		"series":        strings.NewReader("match[]=" + url.QueryEscape(`{a="`+strings.Repeat("x", 100_000)+`"}`)),
	} {
		a.spending(600, 8*time.Second, func() {
			r := a.send("POST", "prometheus/api/v1/"+name, a.viewer, q, "Content-Type", form)
			a.t.Logf("%s: %d, %d bytes, %s: %.120s", name, r.status, len(r.body), r.took, r.body)
			a.want(r, 200, 400, 422)
			if r.took > 35*time.Second || len(r.body) > 33<<20 || bytes.Contains(r.body, []byte("divide")) {
				a.t.Errorf("%s: %s, %d bytes: %.100s", name, r.took, len(r.body), r.body)
			}
		})
	}
	a.want(
		a.send(
			"POST", "prometheus/api/v1/query_range", a.viewer, promQL("1", "start", at(-60), "end", at(0), "step", "1e-9"), "Content-Type", form,
		),
		400,
	)
}

// heavy is a query within the bounds that takes a while.
func (a *attacker) heavy(ctx context.Context, token string) {
	now := time.Now().Unix()
	v := promQL(
		`count(quantile_over_time(0.9, {__name__=~"DCGM.+|auspex_(fan|gpu).+"}[2m:1s]))`, "start", strconv.FormatInt(now-120, 10), "end",
		strconv.FormatInt(now, 10), "step", "2",
	)
	req, err := http.NewRequestWithContext(ctx, "POST", a.p.url+"prometheus/api/v1/query_range", v)
	if err != nil {
		return
	}
	req.Header.Set("Content-Type", form)
	req.Header.Set("Authorization", "Bearer "+token)
	if res, err := http.DefaultClient.Do(req); err == nil {
		_, _ = io.Copy(io.Discard, res.Body)
		_ = res.Body.Close()
	}
}

// insist asks again and again: a product that has just started has little to look at, and one
// answer may come before anybody sees the others wait.
func (a *attacker) insist(ctx context.Context, token string) {
	for ctx.Err() == nil {
		a.heavy(ctx, token)
		time.Sleep(10 * time.Millisecond) // where it is refused
	}
}

func (a *attacker) metric(name string) float64 {
	for line := range strings.SplitSeq(string(a.send("GET", "metrics", "", nil).body), "\n") {
		if rest, ok := strings.CutPrefix(line, name+" "); ok {
			v, _ := strconv.ParseFloat(rest, 64)
			return v
		}
	}
	return 0
}

// queued waits until so many queries wait for their turn.
func (a *attacker) queued(n float64) {
	a.t.Helper()
	a.p.awaitFor(30*time.Second, "queries to wait", func() error {
		if waiting := a.metric("auspex_api_prometheus_queries_waiting"); waiting < n {
			return fmt.Errorf("%v do", waiting)
		}
		return nil
	})
}

func abandonedQueries(t *testing.T, a *attacker) {
	const n = 24
	left := `auspex_api_prometheus_requests_total{result="canceled",route="query_range"}`
	before := a.metric(left)
	ctx, leave := context.WithCancel(t.Context())
	var all sync.WaitGroup
	for range n {
		all.Go(func() { a.insist(ctx, a.viewer) })
	}
	a.queued(n / 2)
	leave()
	all.Wait()
	a.p.awaitFor(5*time.Second, "queries end whose callers have left", func() error {
		if ended := a.metric(left) - before; ended < n/2 {
			return fmt.Errorf("%v of %d have", ended, n)
		}
		return nil
	})
}

func greedyCaller(t *testing.T, a *attacker) {
	ctx, leave := context.WithCancel(t.Context())
	var all sync.WaitGroup
	for range 60 {
		all.Go(func() { a.insist(ctx, a.viewer) })
	}
	a.queued(20)
	r := a.send("POST", "prometheus/api/v1/query", a.admin, promQL("1+1"), "Content-Type", form)
	leave()
	all.Wait()
	a.want(r, 200)
	if r.took > 10*time.Second {
		t.Errorf("a small query of another caller took %s", r.took)
	}
}

func reloadWithoutToken(_ *testing.T, a *attacker) {
	for _, header := range [][]string{
		nil,
		{"Host", "localhost"},
		{"Host", "127.0.0.1:1"},
		{"X-Forwarded-For", "127.0.0.1"},
		{"X-Real-Ip", "::1"},
		{"Forwarded", "for=127.0.0.1"},
	} {
		a.want(a.send("POST", "-/reload", "", nil, header...), 401)
		a.want(a.send("GET", "debug/pprof/heap", "", nil, header...), 401)
	}
	a.want(a.send("POST", "-/reload", a.viewer, nil), 403)
	a.want(a.send("POST", "-/reload", a.operator, nil), 403)
}

func foreignNames(_ *testing.T, a *attacker) {
	for _, path := range []string{"", "api/v1/me", "metrics", "prometheus/api/v1/labels", "api/v1/login"} {
		a.want(a.send("GET", path, a.viewer, nil, "Host", "rebound.example"), 421)
		a.want(a.send("GET", path, a.viewer, nil, "Host", "rebound.example", "X-Forwarded-Host", "localhost"), 421)
	}
	code := a.code()
	a.want(
		a.send(
			"POST", "api/v1/login", "", strings.NewReader(`{"code":"`+code+`"}`), "Content-Type", "application/json", "Origin",
			"https://evil.example",
		),
		403,
	)
	in := a.send("POST", "api/v1/login", "", strings.NewReader(`{"code":"`+code+`"}`), "Content-Type", "application/json")
	a.want(in, 200)
	cookie, _, _ := strings.Cut(in.header.Get("Set-Cookie"), ";")
	a.want(a.send("GET", "api/v1/me", "", nil, "Cookie", cookie), 200)
	a.want(a.send("GET", "api/v1/me", "", nil, "Cookie", cookie, "Sec-Fetch-Site", "cross-site"), 403)
	a.want(a.send("GET", "api/v1/stream", "", nil, "Cookie", cookie, "Origin", "https://evil.example"), 403)
	a.want(a.send("POST", "api/v1/logout", "", nil, "Cookie", cookie), 403)
	a.want(a.send("POST", "-/reload", "", nil, "Cookie", cookie, "Origin", "https://evil.example"), 403)
}

// code is a one-time login code of an admin.
func (a *attacker) code() string {
	a.t.Helper()
	var made struct{ Code string }
	if err := json.Unmarshal(a.send("POST", "api/v1/login-codes", a.admin, nil).body, &made); err != nil || made.Code == "" {
		a.t.Fatalf("no login code: %v", err)
	}
	return made.Code
}

func readableFiles(t *testing.T, a *attacker) {
	seen := 0
	err := filepath.WalkDir(a.p.dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			if errors.Is(err, fs.ErrNotExist) {
				return nil
			}
			return err
		}
		info, err := d.Info()
		if err != nil || info.Mode()&fs.ModeSymlink != 0 {
			return nil //nolint:nilerr // it has gone meanwhile
		}
		if seen++; info.Mode().Perm()&0o077 != 0 {
			t.Errorf("%s has mode %o", path, info.Mode().Perm())
		}
		return nil
	})
	if err != nil || seen < 20 {
		t.Errorf("%d files, %v", seen, err)
	}
	for _, secret := range []string{a.admin, a.viewer} {
		for _, name := range []string{"auspex.db", "auspex.db-wal"} {
			if b, err := os.ReadFile(filepath.Join(a.p.dir, name)); err == nil && bytes.Contains(b, []byte(secret)) {
				t.Errorf("a token stands in %s", name)
			}
		}
	}
}

func revokedTokens(t *testing.T, a *attacker) {
	out, err := command(t, "token", "create", "attack-brief", "--data", a.p.dir).Output()
	if err != nil {
		t.Fatal(err)
	}
	token := strings.TrimSpace(string(out))
	in := a.send("POST", "api/v1/login", "", strings.NewReader(`{"token":"`+token+`"}`), "Content-Type", "application/json")
	a.want(in, 200)
	cookie, _, _ := strings.Cut(in.header.Get("Set-Cookie"), ";")
	req, err := http.NewRequestWithContext(t.Context(), "GET", a.p.url+"api/v1/stream", http.NoBody)
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Cookie", cookie)
	stream, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = stream.Body.Close() }()
	if out, err := command(t, "token", "revoke", "attack-brief", "--data", a.p.dir).CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	a.want(a.send("GET", "api/v1/me", token, nil), 401)
	a.want(a.send("GET", "api/v1/me", "", nil, "Cookie", cookie), 401)
	ended := make(chan struct{})
	go func() { _, _ = io.Copy(io.Discard, stream.Body); close(ended) }()
	select {
	case <-ended:
	case <-time.After(5 * time.Second):
		t.Error("its stream goes on")
	}
}

func guessing(t *testing.T, a *attacker) {
	limited := 0
	for range 40 {
		if a.send("POST", "api/v1/login", "", strings.NewReader(`{"code":"guess"}`), "Content-Type", "application/json").status == 429 {
			limited++
		}
	}
	if limited < 20 {
		t.Errorf("%d of 40 guesses were held back", limited)
	}
	a.want(a.send("POST", "api/v1/login", "", strings.NewReader(`{"code":"`+a.code()+`"}`), "Content-Type", "application/json"), 200)
	a.want(a.send("GET", "api/v1/me", a.viewer, nil), 200)
}

func roles(_ *testing.T, a *attacker) {
	for _, path := range []string{"api/v1/tokens", "api/v1/audit"} {
		a.want(a.send("GET", path, a.viewer, nil), 403)
		a.want(a.send("GET", path, "", nil), 401)
	}
	for _, token := range []string{a.viewer, a.operator} {
		a.want(
			a.send("POST", "api/v1/tokens", token, strings.NewReader(`{"name":"mine","role":"admin"}`), "Content-Type", "application/json"), 403,
		)
		a.want(a.send("POST", "api/v1/login-codes", token, nil), 403)
		a.want(a.send("DELETE", "api/v1/tokens/attack-admin", token, nil), 403)
	}
}

func paths(t *testing.T, a *attacker) {
	for _, path := range []string{
		"../run.json", "..%2f..%2frun.json", "%2e%2e/%2e%2e/etc/passwd", "api/v1/../../-/reload", "//etc/passwd", "debug/pprof/../../metrics%00",
		"app.js/../../run.json",
	} {
		r := a.send("GET", path, "", nil)
		if bytes.Contains(r.body, []byte("root:")) || bytes.Contains(r.body, []byte(a.p.token)) {
			t.Errorf("%s: %.100s", path, r.body)
		}
	}
}

func garbage(t *testing.T, a *attacker) {
	u, err := url.Parse(a.p.url)
	if err != nil {
		t.Fatal(err)
	}
	for _, text := range []string{
		"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03", strings.Repeat("A", 1<<16), "GET / HTTP/9.9\r\n\r\n",
		"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: -1\r\n\r\n",
		"POST /api/v1/login HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\nContent-Length: 3\r\n\r\nffffffffffffffff\r\n",
		"GET / HTTP/1.1\r\nHost: localhost\r\n" + strings.Repeat("X-A: "+strings.Repeat("b", 1000)+"\r\n", 100) + "\r\n", "\r\n\r\n\r\n",
		"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
	} {
		c, err := net.DialTimeout("tcp", u.Host, 5*time.Second)
		if err != nil {
			t.Fatal(err)
		}
		_ = c.SetDeadline(time.Now().Add(20 * time.Second))
		_, _ = io.WriteString(c, text)
		if half, ok := c.(*net.TCPConn); ok {
			_ = half.CloseWrite()
		}
		_, _ = io.Copy(io.Discard, c)
		_ = c.Close()
	}
	a.want(a.send("GET", "-/healthy", "", nil), 200)
}

// twoEnds says in two ways where a request ends: what one reader takes for a body is a
// request to another.
func twoEnds(t *testing.T, a *attacker) {
	u, err := url.Parse(a.p.url)
	if err != nil {
		t.Fatal(err)
	}
	for _, header := range []string{
		"Content-Length: 5\r\nContent-Length: 600\r\n", "Content-Length: 600\r\nContent-Length: 0\r\n",
		"Content-Length: 600\r\nTransfer-Encoding: chunked\r\n", "Transfer-Encoding: xchunked\r\n", "Host: elsewhere\r\n",
	} {
		c, err := net.DialTimeout("tcp", u.Host, 5*time.Second)
		if err != nil {
			t.Fatal(err)
		}
		_ = c.SetDeadline(time.Now().Add(5 * time.Second))
		_, _ = io.WriteString(c, "POST /api/v1/login HTTP/1.1\r\nHost: localhost\r\n"+header+"\r\nGET /-/healthy HTTP/1.1\r\nHost: localhost\r\n\r\n")
		answer := make([]byte, 12)
		if _, err := io.ReadFull(c, answer); err != nil || string(answer) != "HTTP/1.1 400" {
			t.Errorf("%q: %q %v", header, answer, err)
		}
		_ = c.(*net.TCPConn).CloseWrite()
		if rest, _ := io.ReadAll(c); bytes.Contains(rest, []byte("HTTP/1.1 ")) {
			t.Errorf("%q: a body was answered as a request", header)
		}
		_ = c.Close()
	}
}

func bombsForCommands(t *testing.T, a *attacker) {
	file := filepath.Join(a.p.dir, "bomb.gz")
	if err := os.WriteFile(file, certtest.Bomb(t, 1<<30), 0o600); err != nil {
		t.Fatal(err)
	}
	defer func() { _ = os.Remove(file) }()
	for _, args := range [][]string{
		{"decode", "--format", "kmsg", "--max-size", "100MiB", file},
		{"replay", "--topology", file, "--events", os.DevNull, "--out", os.DevNull},
		{"cmdb", "import", file, "--data", filepath.Join(t.TempDir(), "data")},
		{"check", "rules", file},
		{"config", "check", "--config", file},
	} {
		cmd := command(t, args...)
		out, err := cmd.CombinedOutput()
		if err == nil || !bytes.Contains(out, []byte("too large")) {
			t.Errorf("%v: %v %.200s", args, err, out)
		}
		if u, ok := cmd.ProcessState.SysUsage().(*syscall.Rusage); ok && u.Maxrss > 3<<20 { // KiB
			t.Errorf("%v took %d MiB", args, u.Maxrss>>10)
		}
	}
}

func emptyInventories(t *testing.T, a *attacker) {
	b, err := os.ReadFile(filepath.Join(a.p.dir, "sim", "topology.json"))
	if err != nil {
		t.Fatal(err)
	}
	data := filepath.Join(t.TempDir(), "data")
	bring := func(name string, text []byte) error {
		file := filepath.Join(t.TempDir(), name+".json")
		if err := os.WriteFile(file, text, 0o600); err != nil {
			t.Fatal(err)
		}
		return command(t, "cmdb", "import", file, "--data", data).Run()
	}
	if err := bring("whole", b); err != nil {
		t.Fatal(err)
	}
	spoilt := func(spoil func(r map[string]any)) []byte {
		var doc map[string]any
		if err := json.Unmarshal(b, &doc); err != nil {
			t.Fatal(err)
		}
		for _, r := range doc["resources"].([]any) {
			spoil(r.(map[string]any))
		}
		out, err := json.Marshal(doc)
		if err != nil {
			t.Fatal(err)
		}
		return out
	}
	for name, text := range map[string][]byte{
		"half": b[:len(b)/2], "empty": nil, "null": []byte("null"), "object": []byte("{}"), "twice": append(slices.Clone(b), b...),
		"kinds":      spoilt(func(r map[string]any) { r["kind"] = "thing" }),
		"attributes": spoilt(func(r map[string]any) { delete(r, "attrs") }),
		"ids":        spoilt(func(r map[string]any) { r["id"] = fmt.Sprint(r["id"], "x") }),
	} {
		if bring(name, text) == nil {
			t.Errorf("%s: imported", name)
		}
	}
	if err := bring("again", b); err != nil {
		t.Error(err)
	}
	left := func(share float64) []byte { // a little less each time
		n, all := 0, 0
		return spoilt(func(r map[string]any) {
			if attrs, ok := r["attrs"].(map[string]any); ok && len(attrs) > 0 {
				if all++; float64(n) < (1-share)*float64(all) {
					n++
					r["attrs"] = map[string]any{}
				}
			}
		})
	}
	if err := bring("little", left(.93)); err != nil {
		t.Error("a little:", err)
	}
	if bring("and a little", left(.86)) == nil {
		t.Error("small losses that add up: imported")
	}
	if err := bring("whole again", b); err != nil {
		t.Error(err)
	}
}
