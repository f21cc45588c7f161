package e2e

import (
	"errors"
	"fmt"
	"net/http"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"

	"auspex/internal/sim/ledger"
	"auspex/schemas"
)

const (
	pathKills      = 200 // at most
	pathKillsLeast = 20  // fewer were seen by a killer that is blind
)

// walker is whoever takes a server along its path while the product is killed again and again: what it asks for is asked
// again, under the same key, until there is an answer.
type walker struct {
	*pathSite
	k    *killer
	p    *product
	root string // a token
}

// ended are the holds of a process that was killed. Others wait for their time to pass; here it is known to be dead.
const ended = `UPDATE workflows SET holder_ns=0 WHERE status IN ('pending','running'); UPDATE discoveries SET lease_ns=0 WHERE status='running';
UPDATE api_answers SET began_ns=0 WHERE status=0`

// lives starts the product where it does not run, as often as it is killed on its way up.
func (w *walker) lives() {
	w.t.Helper()
	for end := time.Now().Add(patience); ; {
		if w.p != nil {
			select {
			case <-w.p.done:
			default:
				if strings.Contains(w.p.out.String(), "ready http") {
					if w.p.url == "" {
						w.p.ready()
					}
					return
				}
				if time.Now().After(end) {
					w.t.Fatalf("the product is not ready within %s", patience)
				}
				time.Sleep(20 * time.Millisecond) // until it is ready, or killed
				continue
			}
			if !w.k.killed(w.p) {
				w.t.Fatalf("the product ended by itself: %v", *w.p.exit)
			}
			w.p.silent = true
			w.says(ended, "")
		}
		w.p = launch(w.t, w.dir, "--config", w.config(w.k.dsn(w.dsn)))
		if w.root != "" {
			w.k.hunts(w.p)
		}
	}
}

// waits polls until a check passes.
func (w *walker) waits(what string, check func() error) {
	w.t.Helper()
	for end := time.Now().Add(patience); ; time.Sleep(100 * time.Millisecond) { // between two looks at the product
		w.lives()
		err := check()
		if err == nil {
			return
		}
		if errors.As(err, new(settled)) {
			w.t.Fatalf("%s: %v", what, err)
		}
		if time.Now().After(end) {
			w.t.Fatalf("not within %s: %s: %v", patience, what, err)
		}
	}
}

// asks sends a request until it is answered: what makes something under one key.
func (w *walker) asks(out any, method, path, body string) {
	w.t.Helper()
	key := ""
	if method == http.MethodPost {
		key = uuid.NewString()
	}
	for {
		w.lives()
		err := w.p.curlOnce(w.root, key, method, path, body, out)
		if err == nil {
			return
		}
		select {
		case <-w.p.done: // it is asked again
		case <-time.After(5 * time.Second):
			w.t.Fatal(err)
		}
	}
}

// The path of a server, with the product killed at each write of it: before PostgreSQL is told to commit, and when the
// write stands and the product does not know. Nothing is lost, nothing is done twice, and the path comes to its end.
func TestThePathOfAServerOverAKillAtEachWrite(t *testing.T) {
	beside(t)
	began := time.Now()
	w := &walker{pathSite: newPathSite(t)}
	w.k = lurk(t, w.dsn, pathKills)
	w.await, w.killed = w.waits, func() {}
	w.try = func(out any, method, path, body string) error {
		w.lives()
		return w.p.curl(w.root, method, path, body, out)
	}
	w.lives()
	made, err := command(t, "token", "create", "root", "--role", "admin", "--config", filepath.Join(w.files, "auspex.yaml"), "--data", w.dir).Output()
	if err != nil {
		t.Fatal(err)
	}
	w.root = strings.TrimSpace(string(made))
	var ignored map[string]any
	hook := listen(t)
	w.asks(&ignored, "POST", "users", `{"username":"zoe","email":"zoe@example.com","role":"engineer"}`)
	w.asks(&ignored, "POST", "webhooks", fmt.Sprintf(`{"name":"mine","url":%q,"topics":["allocation.*"],"secret":"whsec_%s"}`, hook.URL, strings.Repeat("QUJD", 8)))
	w.k.hunts(w.p)
	defer func() {
		t.Logf("%s: %s", time.Since(began).Round(time.Second), w.k.summary())
		if t.Failed() {
			firing, _ := w.psql(`SELECT doc FROM records WHERE kind='alert' AND status='firing'`)
			t.Logf("alerts that fire: %s", firing)
		}
	}()
	phase := func(what string) { t.Logf("%s: %s, %d kills", time.Since(began).Round(time.Second), what, w.k.count()) }

	v := w.discovered(w.asks)
	phase("it is registered")
	w.looked(w.asks, &v)
	phase("it is ready")
	var given struct {
		Allocation schemas.Allocation
	}
	w.asks(&given, "POST", "allocations", `{"user_id":"zoe","wish":{"servers":2,"together":"rack","min_health":"ok"},"purpose":"train"}`)
	a := given.Allocation
	ill, well := a.Servers[0], a.Servers[1]
	get := func(status string) {
		t.Helper()
		w.waits("it is "+status, func() error {
			w.asks(&a, "GET", "allocations/"+a.ID, "")
			if a.Status == schemas.AllocationFailed {
				return settled{errors.New(a.Reason)}
			}
			if a.Status != status {
				return fmt.Errorf("it is %s: %s", a.Status, a.Reason)
			}
			return nil
		})
	}
	get(schemas.AllocationActive)
	w.says(`SELECT count(*) FROM workflows WHERE type='deploy' AND status='completed' AND attempt=1 AND allocation_id='`+a.ID+`'`, "2")
	w.says(`SELECT count(*) FROM gpus WHERE status='in_use'`, "16")
	w.waits("its user is told", func() error { return hook.heard("auspex.allocation.active " + a.ID) })
	phase("it is somebody's")

	w.breaks(ill + "/gpu3")
	w.waits("its user is told", func() error { return hook.heard("auspex.allocation.degraded " + a.ID) })
	phase("a GPU is lost")
	w.waits("it is given back", func() error {
		if w.asks(&a, "GET", "allocations/"+a.ID, ""); a.Status == schemas.AllocationActive {
			if err := w.try(&a, "POST", "allocations/"+a.ID+"/stop", `{"report":"a GPU is gone"}`); err != nil {
				return err // it was done, or is asked for again
			}
		}
		if a.Status != schemas.AllocationCompleted {
			return errors.New(a.Status)
		}
		return nil
	})
	phase("it is given back")
	w.waits("its user is told", func() error { return hook.heard("auspex.allocation.completed " + a.ID) })
	w.returned(w.asks, &a, ill, well)
	phase("it is ready again")
	var done []string
	for _, e := range output(t, w.dir) {
		if e.Kind == ledger.KindAct || e.Kind == ledger.KindReset || e.Kind == ledger.KindPower && e.Code == "Off" {
			done = append(done, e.Device+" "+e.Kind)
		}
	}
	if want := []string{ill + " " + ledger.KindReset, ill + " " + ledger.KindPower}; !slices.Equal(done, want) {
		t.Errorf("the fleet was done %v, want %v", done, want)
	}
	w.holds()
	w.says(`SELECT count(*) FROM allocation_claims WHERE state<>'released'`, "0")
	w.says(`SELECT string_agg(status || ' ' || resource, ',') FROM records WHERE kind='incident' AND resource LIKE '`+ill+`%'`, "closed "+ill+"/gpu3")
	w.says(`SELECT count(*) FROM control_actions WHERE doc LIKE '%"kind":"power_cycle"%'`, "1")
	w.says(`SELECT count(*) FROM discoveries`, "1")
	if twice := hook.twice(); len(twice) > 0 {
		t.Errorf("told twice: %v", twice)
	}
	if len(w.k.again) > 0 {
		t.Errorf("what had ended went on: %v", w.k.again)
	}
	w.k.hunts(nil)
	w.lives()
	w.p.interrupt()
	w.proves()
	if n := w.k.count(); n < pathKillsLeast || n == pathKills {
		t.Errorf("the product was killed %d times", n)
	}
}
