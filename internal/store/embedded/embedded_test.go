package embedded_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/ClickHouse/ch-go/compress"
	"go.uber.org/goleak"

	"auspex/internal/store/embedded"
	"auspex/internal/store/embedded/embeddedtest"
	"auspex/internal/waittest"
)

func TestMain(m *testing.M) {
	embeddedtest.Main()
	goleak.VerifyTestMain(m)
}

func client(t *testing.T, e *embedded.Engine) func(query string, params url.Values, body string) (int, string) {
	tr := &http.Transport{
		DisableKeepAlives: true, DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) { return e.Dial(ctx) },
	}
	return func(query string, params url.Values, body string) (int, string) {
		t.Helper()
		if params == nil {
			params = url.Values{}
		}
		params.Set("query", query)
		req, _ := http.NewRequestWithContext(t.Context(), http.MethodPost, "http://engine/?"+params.Encode(), strings.NewReader(body))
		resp, err := tr.RoundTrip(req)
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		b, err := io.ReadAll(resp.Body)
		if err != nil {
			t.Fatal(err)
		}
		return resp.StatusCode, strings.TrimSpace(string(b))
	}
}

func TestTheEngineAnswersHTTP(t *testing.T) {
	q := client(t, embeddedtest.Start(t))
	for _, tc := range []struct {
		name, query string
		params      url.Values
		body        string
		code        int
		want        string
	}{
		{name: "select", query: "SELECT 1+1", code: 200, want: "2"},
		{name: "format clause", query: "SELECT 1 AS a FORMAT JSONEachRow;", code: 200, want: `{"a":1}`},
		{name: "comment first", query: "-- why\n/* what */ SELECT 3", code: 200, want: "3"},
		{name: "a query in two halves", query: "SELECT", body: "4", code: 200, want: "4"},
		{
			name: "a setting with quotes", query: "SELECT getSetting('log_comment')",
			params: url.Values{"log_comment": {`it's \ "so"', max_threads='1`}}, code: 200, want: `it\'s \\ "so"\', max_threads=\'1`,
		},
		{name: "a setting is gone afterwards", query: "SELECT getSetting('log_comment')", code: 200, want: ""},
		{name: "a parameter", query: "SELECT {x:String}", params: url.Values{"param_x": {"a'b"}}, code: 200, want: `a\'b`},
		{name: "a name that is none", query: "SELECT 1", params: url.Values{"a=1, b": {"1"}}, code: 400, want: "Code: 115"},
		{name: "an unknown setting", query: "SELECT 1", params: url.Values{"nope_nope": {"1"}}, code: 400, want: "Code: 115"},
		{name: "syntax", query: "SELEC 1", code: 400, want: "Code: 62"},
		{name: "unknown table", query: "SELECT * FROM nope", code: 400, want: "Code: 60"},
		{name: "create", query: "CREATE TABLE t (a UInt32, b String) ENGINE = MergeTree ORDER BY a", code: 200},
		{name: "insert with data", query: "INSERT INTO t FORMAT TabSeparated", body: "1\tx\n2\ty\n", code: 200},
		{name: "insert of values", query: "INSERT INTO t VALUES (3, 'z')", code: 200},
		{name: "packed", query: "INSERT INTO t FORMAT TabSeparated", params: url.Values{"decompress": {"1"}}, body: packed(t, "4\tv\n") + packed(t, "5\tw\n"), code: 200},
		{name: "packed, and cut off", query: "INSERT INTO t FORMAT TabSeparated", params: url.Values{"decompress": {"1"}}, body: packed(t, "6\tu\n")[:20], code: 500, want: "Code: 33"},
		{name: "read back", query: "SELECT groupArray(b) FROM (SELECT b FROM t ORDER BY a)", code: 200, want: "['x','y','z','v','w']"},
		{name: "bad data", query: "INSERT INTO t FORMAT TabSeparated", body: "x\ty\n", code: 500, want: "Code: 27"},
		{name: "memory is bounded", query: "SELECT groupArray(number) FROM numbers(1000000000)", code: 500, want: "Code: 241"},
		{
			name: "the server's limit is set", query: "SELECT value FROM system.server_settings WHERE name = 'max_server_memory_usage'", code: 200,
			want: "805306368",
		},
		{
			name: "the cache is bounded", query: "SELECT value FROM system.server_settings WHERE name = 'mark_cache_size'", code: 200,
			want: "50331648",
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			code, got := q(tc.query, tc.params, tc.body)
			if code != tc.code || (code == 200 && got != tc.want) || !strings.HasPrefix(got, tc.want) {
				t.Errorf("got %d %q, want %d %q", code, got, tc.code, tc.want)
			}
		})
	}
}

// packed is text as a client packs it, in one block.
func packed(t *testing.T, text string) string {
	t.Helper()
	w := compress.NewWriter(compress.LevelZero, compress.LZ4)
	if err := w.Compress([]byte(text)); err != nil {
		t.Fatal(err)
	}
	return string(w.Data)
}

func TestAnEngineThatDiesIsStartedAgainWithItsData(t *testing.T) {
	dir := t.TempDir()
	e := embeddedtest.StartIn(t, dir)
	q := client(t, e)
	q("CREATE TABLE t (a UInt32) ENGINE = MergeTree ORDER BY a", nil, "")
	q("INSERT INTO t VALUES (7)", nil, "")
	if st, err := os.Stat(filepath.Dir(socket(t, e))); err != nil || st.Mode().Perm() != 0o700 {
		t.Errorf("the socket's folder: %v %v", st.Mode(), err)
	}
	for _, pid := range children(t) {
		_ = syscall.Kill(pid, syscall.SIGKILL)
	}
	waittest.For(t, "the engine is missed", func() bool { return e.Health() != nil })
	if _, got := q("SELECT a FROM t", nil, ""); got != "7" {
		t.Errorf("after the restart: %q", got)
	}
}

func TestASecondEngineOnTheSameDataIsRefused(t *testing.T) {
	dir := t.TempDir()
	embeddedtest.StartIn(t, dir)
	cfg := embedded.DefaultConfig()
	cfg.Dir = dir
	// Start tries until its time is over; on a busy machine that may be before the
	// first try has failed.
	for cfg.StartTimeout = 5 * time.Second; ; cfg.StartTimeout *= 3 {
		_, err := embedded.Start(t.Context(), cfg)
		if err != nil && strings.Contains(err.Error(), "in use by another process") {
			return
		}
		if err == nil || cfg.StartTimeout > 2*time.Minute {
			t.Fatalf("got %v", err)
		}
	}
}

func TestALibraryThatDoesNotLoadIsOneSentence(t *testing.T) {
	lib := filepath.Join(t.TempDir(), "libchdb.so")
	if err := os.WriteFile(lib, []byte("no library"), 0o600); err != nil {
		t.Fatal(err)
	}
	cfg := embedded.DefaultConfig()
	cfg.Dir, cfg.Library = t.TempDir(), lib
	_, err := embedded.Start(t.Context(), cfg)
	if !errors.Is(err, embedded.ErrUnavailable) || strings.Contains(err.Error(), "\n") {
		t.Errorf("got %v", err)
	}
	cfg.Library = filepath.Join(t.TempDir(), "missing.so")
	if _, err := embedded.Start(t.Context(), cfg); !errors.Is(err, embedded.ErrUnavailable) {
		t.Errorf("got %v", err)
	}
}

func socket(t *testing.T, e *embedded.Engine) string {
	t.Helper()
	c, err := e.Dial(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	return c.RemoteAddr().String()
}

// children returns the processes that this one has started.
func children(t *testing.T) []int {
	t.Helper()
	var pids []int
	stats, _ := filepath.Glob("/proc/[0-9]*/stat")
	for _, path := range stats {
		b, err := os.ReadFile(path)
		if err != nil {
			continue
		}
		var pid, ppid int
		var state string
		if _, rest, ok := strings.Cut(string(b), ") "); ok {
			if n, _ := fmt.Sscan(rest, &state, &ppid); n == 2 && ppid == os.Getpid() {
				_, _ = fmt.Sscan(string(b), &pid)
				pids = append(pids, pid)
			}
		}
	}
	return pids
}
