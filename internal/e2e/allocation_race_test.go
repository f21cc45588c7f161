package e2e

import (
	"bytes"
	"database/sql"
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	_ "github.com/jackc/pgx/v5/stdlib" // driver "pgx"

	"auspex/schemas"
)

const (
	raceServers, raceGPUs    = 16, 8
	raceRequests, raceCaller = 10_000, 32
	raceQuota                = 40 // GPUs of the team that has one
)

// racer asks one of two processes, and the other where the one is gone.
type racer struct {
	urls   [2]*atomic.Pointer[string]
	token  string
	client *http.Client

	mu       sync.Mutex
	statuses map[string]int
	live     map[string]bool // allocations that were acknowledged: whether they were given back since
	doubtful map[string]bool // of which an answer to a DELETE was lost
}

// ask sends a request, with the same key to the other process where no answer comes.
func (r *racer) ask(n int, method, path, key, body string) (status int, answer []byte, lost bool) {
	for try := range 100 {
		req, err := http.NewRequest(method, *r.urls[(n+try)%2].Load()+"api/v1/"+path, strings.NewReader(body)) //nolint:noctx // the client has a bound
		if err != nil {
			return 0, []byte(err.Error()), true
		}
		req.Header.Set("Authorization", "Bearer "+r.token)
		if body != "" {
			req.Header.Set("Content-Type", "application/json")
		}
		if key != "" {
			req.Header.Set("Idempotency-Key", key)
		}
		resp, err := r.client.Do(req)
		if err == nil {
			answer, err = io.ReadAll(resp.Body)
			_ = resp.Body.Close()
			if err == nil && bytes.Contains(answer, []byte(`"at_work"`)) { // by a process that was killed, for all that is known
				time.Sleep(time.Second) // as Retry-After says
				continue
			}
			if err == nil {
				return resp.StatusCode, answer, lost
			}
		}
		lost = true
	}
	return 0, nil, true
}

func (r *racer) count(what string, status int, answer []byte) {
	var p struct {
		Code string `json:"code"`
	}
	if status >= http.StatusBadRequest {
		_ = json.Unmarshal(answer, &p)
	}
	r.mu.Lock()
	r.statuses[fmt.Sprintf("%s %d %s", what, status, p.Code)]++
	r.mu.Unlock()
}

// run is one caller: it asks for this and that, now or later, and gives back what it was given.
func (r *racer) run(caller, requests int, done *atomic.Int64) {
	random := rand.New(rand.NewPCG(7, uint64(caller)))
	begin := time.Now().Add(time.Hour).Truncate(time.Hour)
	var mine []string
	for n := range requests {
		if len(mine) > 0 && random.IntN(12) < 3+len(mine) {
			k := random.IntN(len(mine))
			id := mine[k]
			mine = slices.Delete(mine, k, k+1)
			status, answer, lost := r.ask(n, http.MethodDelete, "allocations/"+id, "", "")
			r.count("release", status, answer)
			r.mu.Lock()
			switch {
			case lost:
				r.doubtful[id] = true
			case status == http.StatusOK:
				r.live[id] = false
			}
			r.mu.Unlock()
			done.Add(1)
			continue
		}
		wish := []string{`{"gpus":1}`, `{"gpus":4}`, `{"servers":1}`, `{"servers":2}`, `{"gpus":2,"gpus_per_server":1}`}[random.IntN(5)]
		body := fmt.Sprintf(`{"user_id":%q,"wish":%s`, []string{"bound", "free"}[random.IntN(2)], wish)
		if random.IntN(20) > 0 { // what has not begun is free again at once when it is given back
			from := begin.Add(time.Duration(random.IntN(4)) * time.Hour)
			body += fmt.Sprintf(`,"start_time":%q,"end_time":%q`, from.Format(time.RFC3339), from.Add(time.Duration(1+random.IntN(3))*time.Hour).Format(time.RFC3339))
		}
		status, answer, _ := r.ask(n, http.MethodPost, "allocations", fmt.Sprintf("race-%d-%d", caller, n), body+"}")
		r.count("allocate", status, answer)
		var given struct{ Allocation schemas.Allocation }
		if status == http.StatusCreated && json.Unmarshal(answer, &given) == nil {
			id := given.Allocation.ID
			mine = append(mine, id)
			r.mu.Lock()
			r.live[id] = true
			r.mu.Unlock()
		}
		done.Add(1)
	}
}

// Callers race for servers at two processes on one PostgreSQL, one of which is killed in the middle: no GPU has two
// owners, no quota is passed, what was acknowledged is there, and no server is lost.
func TestARaceForServersOverAKill(t *testing.T) {
	beside(t)
	dir := dataDir(t)
	if err := os.Chmod(dir, 0o711); err != nil { //nolint:gosec // PostgreSQL runs as a user of its own
		t.Fatal(err)
	}
	_, vars := startPeer(t, "postgres", dir)
	dsn := vars["POSTGRES_DSN"]
	var resources []schemas.Resource
	for n := range raceServers {
		name := fmt.Sprintf("s%02d", n)
		resources = append(resources, schemas.Resource{ID: name, Kind: schemas.KindServer, Parent: "dc1-r01"})
		for g := range raceGPUs {
			resources = append(resources, schemas.Resource{ID: fmt.Sprintf("%s/gpu%d", name, g), Kind: schemas.KindGPU, Parent: name})
		}
	}
	args := append(site(t, dir, resources...), "--role", "api", "--set", "store.sql="+dsn, "--set", "store.clickhouse=off",
		"--set", "api.limits.reads=0", "--set", "api.limits.writes=0")
	procs := [2]*product{}
	r := &racer{statuses: map[string]int{}, live: map[string]bool{}, doubtful: map[string]bool{}}
	r.client = &http.Client{Timeout: time.Minute, Transport: &http.Transport{MaxIdleConnsPerHost: raceCaller}}
	for k := range procs {
		procs[k] = launch(t, filepath.Join(dir, fmt.Sprintf("api%d", k)), args...)
		procs[k].ready()
		r.urls[k] = &atomic.Pointer[string]{}
		r.urls[k].Store(&procs[k].url)
	}
	made, err := command(t, "token", "create", "root", "--role", "admin", "--data", procs[1].dir, "--set", "store.sql="+dsn).Output()
	if err != nil {
		t.Fatal(err)
	}
	r.token = strings.TrimSpace(string(made))
	for _, name := range []string{"bound", "free"} {
		for path, body := range map[string]string{
			"users": fmt.Sprintf(`{"username":%q,"email":"%s@example.com","role":"engineer"}`, name, name),
		} {
			if status, answer, _ := r.ask(1, http.MethodPost, path, "", body); status != http.StatusCreated {
				t.Fatalf("%s: %d %s", path, status, answer)
			}
		}
	}
	for path, body := range map[string]string{
		"teams": `{"name":"bound","members":["bound"]}`,
	} {
		if status, answer, _ := r.ask(1, http.MethodPost, path, "", body); status != http.StatusCreated {
			t.Fatalf("%s: %d %s", path, status, answer)
		}
	}
	if status, answer, _ := r.ask(1, http.MethodPost, "quotas", "", fmt.Sprintf(`{"team":"bound","max_gpus":%d}`, raceQuota)); status != http.StatusCreated {
		t.Fatalf("quota: %d %s", status, answer)
	}

	db, err := sql.Open("pgx", dsn)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = db.Close() }()

	var done atomic.Int64
	var wg sync.WaitGroup
	ended := make(chan struct{})
	for caller := range raceCaller {
		wg.Go(func() { r.run(caller, raceRequests/raceCaller, &done) })
	}
	go func() { wg.Wait(); close(ended) }()
	procs[1].awaitFor(2*patience, "half of the requests", func() error {
		if err := nowhere(t, db); err != nil {
			return err
		}
		if n := done.Load(); n < raceRequests/2 {
			return fmt.Errorf("%d of %d", n, raceRequests)
		}
		return nil
	})
	procs[0].kill()
	again := launch(t, procs[0].dir, args...)
	again.ready()
	r.urls[0].Store(&again.url)
	procs[1].awaitFor(2*patience, "all requests", func() error {
		if err := nowhere(t, db); err != nil {
			return err
		}
		select {
		case <-ended:
			return nil
		default:
			return fmt.Errorf("%d of %d", done.Load(), raceRequests)
		}
	})
	t.Logf("answers: %v", r.statuses)
	if r.statuses["allocate 409 over_quota"] == 0 {
		t.Error("nobody was refused for the quota")
	}
	for what, n := range r.statuses {
		switch f := strings.Fields(what); f[1] {
		case "201", "200", "409":
		case "404":
			t.Errorf("%d times %s: what was acknowledged is not there", n, what)
		default:
			t.Errorf("%d times %s", n, what)
		}
	}
	r.holds(t, db)
	procs[1].interrupt()
	again.interrupt()
}

// never is what may be found at no moment.
var never = map[string]string{
	"GPUs with two owners at a time": `SELECT 1 FROM allocation_claims a JOIN allocation_claims b ON a.gpu_id=b.gpu_id AND a.allocation_id<b.allocation_id
WHERE a.state<>'released' AND b.state<>'released' AND a.from_ns<b.until_ns AND b.from_ns<a.until_ns`,
	"moments at which the team has more than its quota": fmt.Sprintf(`WITH has AS (SELECT c.from_ns, c.until_ns FROM allocation_claims c
JOIN allocations a ON a.id=c.allocation_id JOIN teams t ON t.id=a.team_id WHERE t.name='bound' AND c.gpu_id IS NOT NULL AND c.state IN ('booked','held'))
SELECT p.from_ns FROM (SELECT DISTINCT from_ns FROM has) p JOIN has h ON h.from_ns<=p.from_ns AND h.until_ns>p.from_ns
GROUP BY p.from_ns HAVING count(*)>%d`, raceQuota),
	"GPUs that are neither free nor somebody's": `SELECT g.id FROM gpus g WHERE (g.status<>'available') <>
EXISTS (SELECT 1 FROM allocation_claims c WHERE c.gpu_id=g.id AND c.state IN ('held','cleaning'))`,
	"claims of what has ended": `SELECT 1 FROM allocation_claims c JOIN allocations a ON a.id=c.allocation_id
WHERE a.status NOT IN ('pending','active') AND c.state IN ('booked','held')`,
	"allocations without a claim": `SELECT 1 FROM allocations a WHERE a.status='pending' AND NOT EXISTS
(SELECT 1 FROM allocation_claims c WHERE c.allocation_id=a.id AND c.state IN ('booked','held'))`,
	"servers that are lost": `SELECT 1 FROM servers WHERE status<>'ready' OR NOT present`,
}

// nowhere looks for what may never be.
func nowhere(t *testing.T, db *sql.DB) error {
	for what, query := range never {
		var n int
		if err := db.QueryRowContext(t.Context(), `SELECT count(*) FROM (`+query+`) AS found`).Scan(&n); err != nil {
			return settled{fmt.Errorf("%s: %w", what, err)}
		}
		if n > 0 {
			return settled{fmt.Errorf("%s: %d", what, n)}
		}
	}
	return nil
}

// holds looks whether what callers were told is so.
func (r *racer) holds(t *testing.T, db *sql.DB) {
	t.Helper()
	if err := nowhere(t, db); err != nil {
		t.Error(err)
	}
	statuses := map[string]string{}
	all, err := db.QueryContext(t.Context(), `SELECT id, status FROM allocations`)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = all.Close() }()
	for all.Next() {
		var id, status string
		if err := all.Scan(&id, &status); err != nil {
			t.Fatal(err)
		}
		statuses[id] = status
	}
	if err := all.Err(); err != nil {
		t.Fatal(err)
	}
	gone := 0
	for id, live := range r.live {
		status, there := statuses[id]
		switch {
		case !there:
			t.Errorf("allocation %s was acknowledged and is not there", id)
		case r.doubtful[id]:
		case live != (status == schemas.AllocationPending):
			t.Errorf("allocation %s is %s; still had: %v", id, status, live)
		}
		if !live {
			gone++
		}
	}
	for id := range statuses {
		if _, told := r.live[id]; !told {
			t.Errorf("allocation %s is nobody's: no caller was told of it", id)
		}
	}
	t.Logf("%d allocations, %d of them given back", len(r.live), gone)
	if len(r.live) < 100 || gone < 50 {
		t.Error("too few were given to tell anything")
	}
}
