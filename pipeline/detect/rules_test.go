package detect_test

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/util/teststorage"

	"auspex/internal/bus"
	"auspex/internal/bus/mem"
	"auspex/internal/store/records"
	"auspex/internal/waittest"
	"auspex/pipeline/detect"
	"auspex/pipeline/enrich"
	"auspex/schemas"
	"auspex/schemas/auspexv1"
)

func parseEvents(v []byte) ([]schemas.Event, error) {
	b := &auspexv1.Batch{}
	err := b.UnmarshalVT(v)
	var out []schemas.Event
	for _, e := range b.GetEvents() {
		out = append(out, schemas.EventFromWire(e))
	}
	return out, err
}

func TestARuleThatFiresBecomesAnAlertAndEnds(t *testing.T) {
	store := teststorage.New(t)
	file := filepath.Join(t.TempDir(), "r.yml")
	if err := os.WriteFile(file, []byte(`groups:
  - name: g
    interval: 1s
    rules:
      - {alert: FanSlow, expr: auspex_fan_speed_rpm < 1000, labels: {type: fan.slow, severity: warning}, annotations: {summary: 'slow: {{ $value }}'}}
`), 0o600); err != nil {
		t.Fatal(err)
	}
	sample := func(v float64) {
		app := store.Appender(t.Context())
		l := labels.FromStrings("__name__", "auspex_fan_speed_rpm", "resource", "s1/psu0", "server", "s1", "collector", "ipmi")
		if _, err := app.Append(0, l, time.Now().UnixMilli(), v); err != nil {
			t.Error(err)
		}
		if err := app.Commit(); err != nil {
			t.Error(err)
		}
	}
	cfg := detect.DefaultRulesConfig()
	cfg.Builtin, cfg.Files, cfg.Settle = false, []string{file}, time.Hour
	b, rec, e := mem.New(1), openRecords(t), enrich.New(inventory(t), nil)
	t.Cleanup(func() { _ = b.Close() })
	start(t, detect.New(detect.DefaultConfig(), b, e, rec, nil, nil))
	stop := start(t, detect.NewRules(cfg, store, nil, b, e, rec, nil, nil))
	sample(500)
	a := alerts(t, b, 1)[0]
	if a.Rule != "metric/FanSlow" || a.Type != "fan.slow" || a.Resource != "s1/psu0" || a.Source != "rule" || a.State != "raised" ||
		a.Message != "slow: 500" ||
		a.Severity != "warning" || a.Server != "s1" || a.Attrs["value"] != "500" || time.Since(a.Time) > 10*time.Minute {
		t.Errorf("%+v", a)
	}
	// It still fires after a restart: nobody is told again.
	stop()
	again := detect.NewRules(cfg, store, nil, b, e, rec, nil, nil)
	stop = start(t, again)
	waittest.For(t, "the rule is evaluated", func() bool { return !again.Groups()[0].GetLastEvaluation().IsZero() })
	sample(2000)
	if a := alerts(t, b, 2)[1]; a.Status != "resolved" || a.State != "cleared" || a.Resource != "s1/psu0" {
		t.Errorf("%+v", a)
	}
	// It fires, and ends while nothing runs: the next run says so.
	sample(500)
	alerts(t, b, 3)
	stop()
	sample(3000)
	cfg.Settle = 10 * time.Millisecond
	start(t, detect.NewRules(cfg, store, nil, b, e, rec, nil, nil))
	if a := alerts(t, b, 4)[3]; a.Status != "resolved" {
		t.Errorf("%+v", a)
	}
	if got := collect(t, b, schemas.TopicEvents, 4, parseEvents); got[0].ID == got[2].ID {
		t.Error("two conditions of one series have the same id")
	}
}

// An alert that was published as its run was killed comes to the records when the next run has begun, and ends with the
// others that do not fire again.
func TestAnAlertThatComesLateHasAnEnd(t *testing.T) {
	store := teststorage.New(t)
	cfg := detect.DefaultRulesConfig()
	cfg.Builtin, cfg.Files, cfg.Settle = false, []string{filepath.Join(t.TempDir(), "r.yml")}, 2*time.Second
	if err := os.WriteFile(cfg.Files[0], []byte("groups:\n  - name: g\n    interval: 100ms\n    rules:\n      - {alert: FanSlow, expr: fan < 1}\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	b, rec, e := mem.New(1), openRecords(t), enrich.New(inventory(t), nil)
	t.Cleanup(func() { _ = b.Close() })
	before := schemas.Event{
		ID: "00000000000000aa", Time: time.Now().Add(-time.Minute), Observed: time.Now().Add(-time.Second), Source: schemas.SourceRule, Resource: "s1/psu0",
		Type: "fan.slow", Severity: schemas.SeverityWarning, State: schemas.StateRaised, Attrs: map[string]string{detect.AttrRule: "FanSlow", "series": "abc"},
	}
	start(t, detect.NewRules(cfg, store, nil, b, e, rec, nil, nil))
	w, err := (&auspexv1.Batch{Device: "s1", Collector: schemas.SourceRule, Observed: before.Observed.UnixNano(), Events: []*auspexv1.Event{before.Wire()}}).MarshalVT()
	if err == nil {
		err = b.Publish(t.Context(), bus.Message{Topic: schemas.TopicEvents, Key: "s1", Value: w})
	}
	if err != nil {
		t.Fatal(err)
	}
	start(t, detect.New(detect.DefaultConfig(), b, e, rec, nil, nil))
	if a := alerts(t, b, 2)[1]; a.Status != "resolved" || a.Type != "fan.slow" {
		t.Errorf("%+v", a)
	}
}

func TestReplacedRulesEndWhatTheyNoLongerSay(t *testing.T) {
	store := teststorage.New(t)
	file := filepath.Join(t.TempDir(), "r.yml")
	rules := func(text string) {
		t.Helper()
		if err := os.WriteFile(file, []byte("groups:\n  - name: g\n    interval: 1s\n    rules:\n"+text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	const keep, changed, gone, added = "    - {alert: Keep, expr: vector(1)}\n", "    - {alert: Changed, expr: vector(1)}\n", "    - {alert: Gone, expr: vector(1)}\n", "    - {alert: Added, expr: vector(1)}\n"
	rules(keep + changed + gone)
	cfg := detect.DefaultRulesConfig()
	cfg.Builtin, cfg.Files, cfg.Settle = false, []string{file}, time.Millisecond // a rule has its say though it comes by later
	b, rec, e := mem.New(1), openRecords(t), enrich.New(inventory(t), nil)
	t.Cleanup(func() { _ = b.Close() })
	r := detect.NewRules(cfg, store, nil, b, e, rec, nil, nil)
	start(t, r)
	logged := func(n int) map[string]string {
		t.Helper()
		out := map[string]string{}
		for _, ev := range collect(t, b, schemas.TopicEvents, n, parseEvents) {
			out[ev.Attrs[detect.AttrRule]] += ev.State + " "
		}
		return out
	}
	logged(3)
	rules(keep + "    - {alert: Changed, expr: vector(1) > 2}\n" + added + "    - {alert: Bad, expr: 'sum('}\n")
	if _, err := r.Prepare(t.Context(), cfg); err == nil || !strings.Contains(err.Error(), "r.yml: 8:") {
		t.Errorf("a bad rule: %v", err)
	}
	rules(keep + "    - {alert: Changed, expr: vector(1) > 2}\n" + added)
	apply, err := r.Prepare(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	if err := apply(t.Context()); err != nil {
		t.Fatal(err)
	}
	want := map[string]string{"Keep": "raised ", "Changed": "raised cleared ", "Gone": "raised cleared ", "Added": "raised "}
	if d := cmp.Diff(want, logged(6)); d != "" {
		t.Error(d)
	}
}

// slowRecords has nothing, and from the second time on says so only when it is let.
type slowRecords struct {
	asked atomic.Int32
	looks chan chan struct{}
}

func (s *slowRecords) Alerts(ctx context.Context, _ records.Filter) ([]schemas.Alert, string, error) {
	if s.asked.Add(1) > 1 {
		answer := make(chan struct{})
		select {
		case s.looks <- answer:
			<-answer
		case <-ctx.Done():
		}
	}
	return nil, "", ctx.Err()
}

// Whether what fired has ended is decided while the rules are replaced.
func TestAlertsOutliveRulesThatAreReplacedMeanwhile(t *testing.T) {
	file := filepath.Join(t.TempDir(), "r.yml")
	rules := func(text string) {
		t.Helper()
		if err := os.WriteFile(file, []byte("groups:\n  - name: g\n    interval: 1s\n    rules:\n    - {alert: Keep, expr: vector(1)}\n"+text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	rules("")
	cfg := detect.DefaultRulesConfig()
	cfg.Builtin, cfg.Files, cfg.Settle = false, []string{file}, time.Millisecond
	b, rec := mem.New(1), &slowRecords{looks: make(chan chan struct{})}
	t.Cleanup(func() { _ = b.Close() })
	r := detect.NewRules(cfg, teststorage.New(t), nil, b, enrich.New(inventory(t), nil), rec, nil, nil)
	start(t, r)
	collect(t, b, schemas.TopicEvents, 1, parseEvents)
	answer := <-rec.looks
	rules("    - {alert: Added, expr: vector(1)}\n")
	apply, err := r.Prepare(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	if err := apply(t.Context()); err != nil {
		t.Fatal(err)
	}
	close(answer)
	close(<-rec.looks) // by now all have had their say
	for _, ev := range collect(t, b, schemas.TopicEvents, 2, parseEvents) {
		if ev.State != schemas.StateRaised {
			t.Errorf("%s: %s", ev.Attrs[detect.AttrRule], ev.State)
		}
	}
}

func TestBuiltinRulesLoadAndBadOnesNameTheirPlace(t *testing.T) {
	cfg := detect.DefaultRulesConfig()
	n, err := detect.CheckRules(cfg)
	if err != nil || n < 20 {
		t.Errorf("%d rules, %v", n, err)
	}
	dir := t.TempDir()
	for name, c := range map[string]struct{ text, want string }{
		"expr":     {"groups:\n- name: g\n  rules:\n  - alert: A\n    expr: 'sum('\n", "expr.yml"},
		"yaml":     {"groups: 3\n", "line 1"},
		"field":    {"groups:\n- name: g\n  rulez: []\n", "rulez"},
		"severity": {"groups:\n- name: g\n  rules:\n  - alert: A\n    expr: up\n    labels: {severity: loud}\n", `rule A: severity: want info, warning, error or critical, got "loud"`},
	} {
		file := filepath.Join(dir, name+".yml")
		if err := os.WriteFile(file, []byte(c.text), 0o600); err != nil {
			t.Fatal(err)
		}
		cfg.Files = []string{file}
		if _, err := detect.CheckRules(cfg); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, want %q", name, err, c.want)
		}
	}
	cfg.Files = []string{filepath.Join(dir, "none.yml")}
	if _, err := detect.CheckRules(cfg); err == nil || !strings.Contains(err.Error(), "none.yml") {
		t.Errorf("missing file: %v", err)
	}
	for _, change := range []func(*detect.RulesConfig){
		func(c *detect.RulesConfig) { c.Interval = 0 },
		func(c *detect.RulesConfig) { c.Timeout = 0 },
		func(c *detect.RulesConfig) { c.MaxSamples = 0 },
		func(c *detect.RulesConfig) { c.Settle = -1 },
		func(c *detect.RulesConfig) { c.Files = []string{"["} },
	} {
		c := detect.DefaultRulesConfig()
		change(&c)
		if c.Validate() == nil {
			t.Errorf("accepted %+v", c)
		}
	}
}
