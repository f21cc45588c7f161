package control

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/cloudevents/sdk-go/v2/event"
	"github.com/prometheus/client_golang/prometheus"
	standardwebhooks "github.com/standard-webhooks/standard-webhooks/libraries/go"

	"auspex/control/messages"
	"auspex/internal/bus"
	"auspex/internal/notices"
	"auspex/internal/store/estate"
	"auspex/internal/store/hooks"
	"auspex/internal/store/records"
	"auspex/internal/store/sqldb"
	"auspex/internal/store/sqldb/sqltest"
	"auspex/internal/waittest"
	"auspex/schemas"
)

const hookSecret hooks.Secret = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"

// desk takes tickets as somebody else's program does: with the libraries of Standard Webhooks and CloudEvents.
type desk struct {
	*httptest.Server

	mu     sync.Mutex
	takes  func(n int) bool // false: the answer never comes; nil takes all
	asked  int
	events map[string]event.Event // by id
}

func newDesk(t *testing.T, takes func(n int) bool) *desk {
	t.Helper()
	d := &desk{takes: takes, events: map[string]event.Event{}}
	d.Server = httptest.NewServer(d)
	t.Cleanup(d.Close)
	return d
}

func (d *desk) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	wh, bad := standardwebhooks.NewWebhook(string(hookSecret))
	if err := errors.Join(err, bad); err != nil {
		http.Error(w, err.Error(), http.StatusTeapot)
		return
	}
	if err := wh.Verify(body, r.Header); err != nil {
		http.Error(w, err.Error(), http.StatusUnauthorized)
		return
	}
	var e event.Event
	if err := json.Unmarshal(body, &e); err != nil {
		http.Error(w, err.Error(), http.StatusTeapot)
		return
	}
	if err := e.Validate(); err != nil {
		http.Error(w, err.Error(), http.StatusTeapot)
		return
	}
	d.mu.Lock()
	d.asked++
	n := d.asked
	d.events[e.ID()] = e
	takes := d.takes
	d.mu.Unlock()
	if takes != nil && !takes(n) {
		<-r.Context().Done() // whoever sent it is gone
		return
	}
	w.WriteHeader(http.StatusNoContent)
}

// tickets are those that came, by type.
func (d *desk) tickets(t *testing.T) map[string][]schemas.Ticket {
	t.Helper()
	d.mu.Lock()
	defer d.mu.Unlock()
	out := map[string][]schemas.Ticket{}
	for _, e := range d.events {
		var tk schemas.Ticket
		if err := json.Unmarshal(e.Data(), &tk); err != nil {
			t.Fatal(err)
		}
		out[e.Type()] = append(out[e.Type()], tk)
	}
	return out
}

func hookTo(t *testing.T, db *sqldb.DB, url string, topics ...string) {
	t.Helper()
	if _, err := hooks.New(db).Create(t.Context(), "root", schemas.Webhook{Name: "desk", URL: url, Topics: topics, Active: true}, hookSecret); err != nil {
		t.Fatal(err)
	}
}

// sends runs the sender of notices until the test ends.
func sends(t *testing.T, db *sqldb.DB) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	done := make(chan error, 1)
	go func() { done <- quickSender(db).Run(ctx, func() {}) }()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
}

func quickSender(db *sqldb.DB) *notices.Sender {
	cfg := notices.DefaultConfig()
	cfg.First, cfg.Longest, cfg.Poll = 10*time.Millisecond, 40*time.Millisecond, 10*time.Millisecond
	return notices.NewSender(cfg, hooks.New(db), slog.New(slog.DiscardHandler), prometheus.NewRegistry())
}

// decide says of an action what a person does.
func (b *bench) decide(c *Controller, action, verb, note string) {
	b.t.Helper()
	value, err := json.Marshal(schemas.Intent{ID: verb, Verb: verb, Action: action, Actor: "ann", Note: note})
	if err != nil {
		b.t.Fatal(err)
	}
	if err := c.onIntents(b.t.Context(), []bus.Message{{Value: value}}); err != nil {
		b.t.Fatal(err)
	}
}

func TestATicketIsToldWithItsEvidenceAndClosedByAPerson(t *testing.T) {
	b, d := newBench(t, schemas.ModeEnforce), newDesk(t, nil)
	hookTo(t, b.db, d.URL, "ticket.*")
	sends(t, b.db)
	c := b.controller()
	c.d.Console = "https://console.example.com/"
	c.d.Resource = func(id string) (schemas.Resource, bool) {
		return schemas.Resource{ID: id, Kind: schemas.KindGPU, Attrs: schemas.AttrsOf(map[string]string{schemas.AttrSerial: "SN-" + id, schemas.AttrModel: "H100"})}, true
	}
	b.w.dead["gpu-r01-03"] = true // its gpu2 does not come back
	inc := incident("i1", "gpu-r01-03/gpu2", "gpu.fallen_off_bus")
	inc.Explanations = map[string]string{"en": "because", "zh": "因为"}
	inc.Alternatives = []schemas.Cause{{Resource: "gpu-r01-03", Fault: "host.crash", Confidence: 0.1}}
	as := b.until(c, func(as []schemas.Action) bool { return states(as)["ticket"] == schemas.ActionProposed && b.over() }, inc)
	at := slices.IndexFunc(as, func(a schemas.Action) bool { return a.Kind == "ticket" })
	ticket := as[at]
	if !ticket.Person || ticket.DetailSentence == nil || ticket.DetailSentence.ID != messages.ForPersonAfterTold || !strings.HasSuffix(ticket.Detail, "told to desk") {
		t.Errorf("%+v", ticket)
	}
	arrives := func(kind string) schemas.Ticket {
		waittest.Until(t, func() error {
			if got := d.tickets(t); len(got["auspex."+kind]) != 1 {
				return fmt.Errorf("%+v", got)
			}
			return nil
		})
		return d.tickets(t)["auspex."+kind][0]
	}
	got := arrives(schemas.NoticeTicketOpened)
	kinds := make([]string, len(got.Tried))
	for i, a := range got.Tried {
		kinds[i] = a.Kind + " " + a.State
		if len(a.Rails) == 0 || a.Kind == "power_cycle" && a.SentAt.IsZero() {
			t.Errorf("of %s it is not told what was checked and sent: %+v", a.Kind, a)
		}
	}
	if got.ID != ticket.ID || got.State != schemas.ActionProposed || !got.Held || got.Rack != "r01" || got.Site != "dc1" ||
		len(got.Parts) != 2 || got.Parts[0].Serial != "SN-gpu-r01-03" || got.Parts[1].Serial != "SN-gpu-r01-03/gpu2" || got.Parts[1].Model != "H100" ||
		got.Incident == nil || got.Incident.RootCause.Confidence != 0.9 || len(got.Incident.Alternatives) != 1 || got.Incident.Explanations["zh"] != "因为" ||
		strings.Join(kinds, ", ") != "drain done, power_cycle failed" ||
		got.Links["incident"] != "https://console.example.com/incidents/i1" || got.Links["resolve"] != "https://console.example.com/api/v1/actions/"+ticket.ID+"/resolve" {
		t.Errorf("%+v", got)
	}
	// Only a person's step can be resolved.
	c = b.controller() // one that has ended writes nothing
	b.decide(c, as[(at+1)%len(as)].ID, verbResolve, "")
	b.decide(c, ticket.ID, verbResolve, "OPS-17: the GPU was exchanged")
	if err := c.decided(t.Context()); err != nil {
		t.Fatal(err)
	}
	closed := arrives(schemas.NoticeTicketClosed)
	done := b.actionOf(ticket.ID)
	if done.State != schemas.ActionDone || done.Actor != "ann" || done.VerifiedBy != "ann says that it is done: OPS-17: the GPU was exchanged" ||
		closed.By != "ann" || closed.What != done.VerifiedBy || closed.State != schemas.ActionDone {
		t.Errorf("%+v\n%+v", done, closed)
	}
	var left int
	if err := b.db.QueryRowContext(t.Context(), `SELECT count(*) FROM control_intents`).Scan(&left); err != nil || left != 0 {
		t.Errorf("%d intents are left: %v", left, err)
	}
}

func TestATicketWhoseIncidentEndsIsClosed(t *testing.T) {
	b, d := newBench(t, schemas.ModeEnforce), newDesk(t, nil)
	hookTo(t, b.db, d.URL)
	sends(t, b.db)
	c := b.controller()
	as := b.until(c, func(as []schemas.Action) bool {
		return states(as)["inspect_feed"] == schemas.ActionProposed && b.over()
	}, incident("i2", "pdu-r01-a", "power.feed_loss"))
	inc := incident("i2", "pdu-r01-a", "power.feed_loss")
	now := time.Now()
	inc.Closed = &now
	c = b.controller() // one that has ended writes nothing
	c.consider(inc)
	if err := c.withdraw(t.Context()); err != nil {
		t.Fatal(err)
	}
	waittest.Until(t, func() error {
		got := d.tickets(t)
		if len(got["auspex."+schemas.NoticeTicketOpened]) != 1 || len(got["auspex."+schemas.NoticeTicketClosed]) != 1 {
			return fmt.Errorf("%+v", got)
		}
		return nil
	})
	if got := d.tickets(t)["auspex."+schemas.NoticeTicketClosed][0]; got.ID != as[0].ID || got.By != actor || got.State != schemas.ActionCancelled || got.What != "the incident closed" {
		t.Errorf("%+v", got)
	}
}

func TestNobodyIsToldOfWhatIsOnlyProposed(t *testing.T) {
	for _, mode := range []string{schemas.ModeObserve, schemas.ModeDryRun} {
		b := newBench(t, mode)
		hookTo(t, b.db, "https://desk.example.com/")
		as := b.until(b.controller(), func(as []schemas.Action) bool { return len(as) > 0 }, incident("i2", "pdu-r01-a", "power.feed_loss"))
		var n int
		if err := b.db.QueryRowContext(t.Context(), `SELECT count(*) FROM notices`).Scan(&n); err != nil || n != 0 || as[0].Detail != "for a person" {
			t.Errorf("%s: %d notices, %v, %+v", mode, n, err, as)
		}
	}
}

const quarantineText = `
budgets: {fleet: 2, rack: 1, per_hour: 4}
breaker: {cases: 5, window: 10m}
policies:
  - name: gpu
    faults: [gpu.fallen_off_bus]
    settle: 0s
    max_evidence_age: 1h
    ladder:
      - {kind: drain, attempts: 2, verify: 2s}
      - {kind: power_cycle, needs: [drain], destructive: true, verify: 2s, quiet: 30ms}
      - {kind: uncordon, needs: [power_cycle], verify: 2s}
      - {kind: quarantine, verify: 2s}
`

// keptServer puts the server of the bench among those that are given to people.
func keptServer(t *testing.T, db *sqldb.DB) {
	t.Helper()
	if _, err := db.ExecContext(t.Context(), `INSERT INTO servers (id, name, model, status, pool_id, ipmi_ip, redfish_url, management_ip, serial_number, present, since_ns, created_ns, updated_ns, revision)
SELECT 's1', $1, 'x', 'ready', id, '', '', '', '', TRUE, 1, 1, 1, 1 FROM pools LIMIT 1`, server); err != nil {
		t.Fatal(err)
	}
}

func holdOf(t *testing.T, db *sqldb.DB) (why, by string) {
	t.Helper()
	if err := db.QueryRowContext(t.Context(), `SELECT hold, hold_by FROM servers WHERE name=$1`, server).Scan(&why, &by); err != nil {
		t.Fatal(err)
	}
	return why, by
}

func TestAServerInQuarantineIsGivenBackByAPersonAlone(t *testing.T) {
	for name, cured := range map[string]bool{"cured": true, "not cured": false} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := newBench(t, schemas.ModeEnforce)
			writeFile(t, b.dir+"/policy.yaml", quarantineText)
			keptServer(t, b.db)
			c := b.controller()
			b.w.dead[server] = !cured
			last := map[bool]string{true: "uncordon", false: "ticket"}[cured]
			as := b.until(c, func(as []schemas.Action) bool { return states(as)[last] != "" && b.over() }, incident("i1", server+"/gpu2", "gpu.fallen_off_bus"))
			why, by := holdOf(t, b.db)
			if cured {
				if states(as)["quarantine"] != "" || why != "" || b.w.drained[server] {
					t.Errorf("%v, held back for %q", states(as), why)
				}
				return
			}
			if states(as)["quarantine"] != schemas.ActionDone || by != actor || !strings.HasPrefix(why, "in quarantine until somebody gives it back: incident i1") || !b.w.drained[server] {
				t.Fatalf("%v, held back by %s for %q", states(as), by, why)
			}
			// That its signs end, since nothing runs on it, does not end what is a person's.
			again := b.controller()
			over := incident("i1", server+"/gpu2", "gpu.fallen_off_bus")
			over.Closed = &over.Updated
			again.consider(over)
			if err := again.withdraw(t.Context()); err != nil {
				t.Fatal(err)
			}
			if got := b.stored()["ticket"]; got != schemas.ActionProposed {
				t.Errorf("the ticket of a server that is out is %s", got)
			}
			// It counts as out of the pool by us, after a restart too.
			again = b.controller()
			b.tell(again, wish("r1", "uncordon", nil))
			b.until(again, func([]schemas.Action) bool { return b.closed("r1") })
			if a := b.actionOf("r1"); a.State != schemas.ActionDone {
				t.Errorf("%+v", a)
			}
			if got := b.stored()["ticket"]; got != schemas.ActionCancelled {
				t.Errorf("the ticket of a server that was given back is %s", got)
			}
			if why, by := holdOf(t, b.db); why != "" || by != "" || b.w.drained[server] {
				t.Errorf("it is held back by %s for %q", by, why)
			}
			if held, _ := again.held(&climb{Subject: "other"}); held != 1 {
				t.Errorf("%d servers count as out of the pool, of which one asks", held)
			}
		})
	}
}

// stored are the states of all actions by kind, as control has them.
func (b *bench) stored() map[string]string {
	b.t.Helper()
	as, err := sqldb.Docs[schemas.Action](b.t.Context(), b.db, `SELECT doc FROM control_actions ORDER BY id`)
	if err != nil {
		b.t.Fatal(err)
	}
	return states(as)
}

// over reports whether no case is open.
func (b *bench) over() bool {
	b.t.Helper()
	var n int
	if err := b.db.QueryRowContext(b.t.Context(), `SELECT count(*) FROM control_cases WHERE state='open'`).Scan(&n); err != nil {
		b.t.Fatal(err)
	}
	return n == 0
}

func TestWhatOthersHoldBackStaysSo(t *testing.T) {
	db := sqltest.Open(t)
	keptServer(t, db)
	hold := func(f func(tx *sql.Tx) error) {
		t.Helper()
		if err := db.InTx(t.Context(), f); err != nil {
			t.Fatal(err)
		}
	}
	hold(func(tx *sql.Tx) error { return estate.HoldBack(t.Context(), tx, time.Now(), "ann", server, "mine") })
	hold(func(tx *sql.Tx) error { return estate.HoldBack(t.Context(), tx, time.Now(), actor, server, "ours") })
	hold(func(tx *sql.Tx) error { return estate.LetGo(t.Context(), tx, time.Now(), actor, "bob", server) })
	if why, by := holdOf(t, db); why != "mine" || by != "ann" {
		t.Errorf("held back by %s for %q", by, why)
	}
}

// victimEnv has the store of a process that is killed.
const victimEnv = "AUSPEX_TICKETS_STORE"

// TestVictim is no test but what is killed: a controller and a sender over a store.
func TestVictim(t *testing.T) {
	dsn := os.Getenv(victimEnv)
	if dsn == "" {
		t.Skip("it is the process that another test kills")
	}
	db, err := sqldb.Open(t.Context(), dsn)
	if err != nil {
		t.Fatal(err)
	}
	b := &bench{t: t, dir: t.TempDir(), mode: schemas.ModeEnforce, w: newWorld(), bus: &nullBus{}, db: db}
	writeFile(t, b.dir+"/policy.yaml", policyText)
	c := b.controller()
	go func() { _ = quickSender(db).Run(t.Context(), func() {}) }()
	_ = c.Run(t.Context(), func() {}) // until it is killed
}

func TestAKilledProcessTellsATicketUnderOneID(t *testing.T) {
	t.Parallel()
	if os.Getenv("POSTGRES_DSN") != "" {
		t.Skip("a schema of a server is the test's own; the kill is the same over a file")
	}
	dsn := sqltest.DSN(t)
	db, err := sqldb.Open(t.Context(), dsn)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = db.Close() }()
	b := &bench{t: t, db: db}
	b.keep(incident("i2", "pdu-r01-a", "power.feed_loss"))
	const kills = 3
	arrived := make(chan int, kills+1)
	d := newDesk(t, func(n int) bool {
		arrived <- n
		return n > kills
	})
	hookTo(t, db, d.URL, "ticket.*")
	for n := 1; n <= kills+1; n++ {
		cmd := exec.Command(os.Args[0], "-test.run=^TestVictim$")
		cmd.Env = append(os.Environ(), victimEnv+"="+dsn)
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		select {
		case <-arrived:
		case <-time.After(2 * time.Minute):
			t.Error("no ticket came")
		}
		if n > kills { // its answer is written down
			waittest.Until(t, func() error {
				found, _, err := hooks.New(db).Deliveries(t.Context(), "desk", schemas.DeliveryDelivered, "", "", 10)
				if err == nil && len(found) != 1 {
					err = fmt.Errorf("%d are delivered", len(found))
				}
				return err
			})
		}
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
		// What it had claimed is its own for longer than an attempt may take: the wait is taken away.
		if _, err := db.ExecContext(t.Context(), `UPDATE deliveries SET next_ns=0 WHERE state='pending'`); err != nil {
			t.Fatal(err)
		}
	}
	as, _, err := records.New(db).Actions(t.Context(), records.Filter{})
	if err != nil || len(as) != 1 || as[0].State != schemas.ActionProposed {
		t.Fatalf("%+v %v", as, err)
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if len(d.events) != 1 || d.asked != kills+1 {
		t.Errorf("%d ids in %d requests", len(d.events), d.asked)
	}
}
