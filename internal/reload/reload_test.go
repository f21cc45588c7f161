package reload_test

import (
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"auspex/internal/reload"
)

type settings struct {
	Listen string `yaml:"listen"`
	Rules  struct {
		Files   []string `yaml:"files"`
		Timeout int      `yaml:"timeout"`
	} `yaml:"rules"`
	Level string `yaml:"level"`
}

// process is one with two parts that take settings over.
type process struct {
	*reload.Manager[settings]
	file         settings // what is on the disk
	err          error    // what is wrong with it
	rules, level string   // in force
	refuse, fail error    // of the rules
	reg          *prometheus.Registry
	signals      chan struct{}
	stop         func()
}

func start(t *testing.T) *process {
	t.Helper()
	p := &process{reg: prometheus.NewRegistry(), signals: make(chan struct{})}
	p.file.Listen, p.file.Level = ":80", "warn"
	p.Manager = reload.New(p.file, func() (settings, error) { return p.file, p.err }, slog.New(slog.DiscardHandler), p.reg)
	p.Add(reload.Part[settings]{Name: "log", Keys: []string{"level"}, Prepare: func(_ context.Context, s settings) (func(context.Context) error, error) {
		return func(context.Context) error { p.level = s.Level; return nil }, nil
	}})
	p.Add(reload.Part[settings]{Name: "rules", Keys: []string{"rules.files"}, Prepare: func(_ context.Context, s settings) (func(context.Context) error, error) {
		return func(context.Context) error { p.rules = strings.Join(s.Rules.Files, " "); return p.fail }, p.refuse
	}})
	ctx, cancel := context.WithCancel(t.Context())
	ready, done := make(chan struct{}), make(chan error, 1)
	go func() { done <- p.Follow(ctx, func() { close(ready) }, p.signals) }()
	<-ready
	p.stop = sync.OnceFunc(func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
	t.Cleanup(p.stop)
	return p
}

func TestWhatCanChangeIsInForceAndTheRestIsNamed(t *testing.T) {
	p := start(t)
	p.file.Level, p.file.Rules.Files, p.file.Listen, p.file.Rules.Timeout = "debug", []string{"a.yml"}, ":81", 3
	r, err := p.Reload(t.Context())
	want := reload.Report{
		Read: []string{"log", "rules"}, Applied: []string{"level", "rules.files"}, NeedsRestart: []string{"listen", "rules.timeout"},
	}
	if d := cmp.Diff(want, r); err != nil || d != "" || p.level != "debug" || p.rules != "a.yml" {
		t.Error(err, d, p.level, p.rules)
	}
	// What needs a restart is named until it is as it was; what was applied is not.
	p.file.Listen = ":80"
	r, err = p.Reload(t.Context())
	want = reload.Report{Read: []string{"log", "rules"}, Applied: []string{}, NeedsRestart: []string{"rules.timeout"}}
	if d := cmp.Diff(want, r); err != nil || d != "" {
		t.Error(err, d)
	}
}

func TestABadFileChangesNothing(t *testing.T) {
	p := start(t)
	for name, breakIt := range map[string]func(){
		"configuration": func() { p.err = errors.New("a.yaml:3: unknown key") },
		"part":          func() { p.refuse = errors.New("rules.yml: 5:1: bad") },
	} {
		p.err, p.refuse = nil, nil
		breakIt()
		p.file.Level = "error"
		if _, err := p.Reload(t.Context()); err == nil || p.level != "" {
			t.Errorf("%s: %v, level %q", name, err, p.level)
		}
		w := httptest.NewRecorder()
		p.ServeHTTP(w, httptest.NewRequest("POST", "/-/reload", nil))
		var body struct{ Code, Detail string }
		if err := json.Unmarshal(w.Body.Bytes(), &body); err != nil || w.Code != 422 || body.Code != "bad_configuration" ||
			!strings.Contains(body.Detail, ":") {
			t.Errorf("%s: %d %s", name, w.Code, w.Body)
		}
	}
	const failed = `
# HELP auspex_config_last_reload_successful 1 unless the last reload of the configuration failed.
# TYPE auspex_config_last_reload_successful gauge
auspex_config_last_reload_successful 0
# HELP auspex_config_reloads_total Reloads of the configuration, by result: success, or failure, which changes nothing.
# TYPE auspex_config_reloads_total counter
auspex_config_reloads_total{result="failure"} 4
auspex_config_reloads_total{result="success"} 0
`
	if err := testutil.GatherAndCompare(
		p.reg, strings.NewReader(failed), "auspex_config_reloads_total", "auspex_config_last_reload_successful",
	); err != nil {
		t.Error(err)
	}
	p.err, p.refuse = nil, nil
	p.signals <- struct{}{}
	p.stop() // when the reload is done
	if p.level != "error" {
		t.Errorf("the good file is not in force: %q", p.level)
	}
}

func TestAPartThatFailsAfterAllIsNamed(t *testing.T) {
	p := start(t)
	p.fail = errors.New("disk full")
	w := httptest.NewRecorder()
	p.ServeHTTP(w, httptest.NewRequest("POST", "/-/reload", nil))
	if w.Code != 500 || !strings.Contains(w.Body.String(), "rules was accepted") || !strings.Contains(w.Body.String(), "disk full") {
		t.Errorf("%d %s", w.Code, w.Body)
	}
}

func TestNothingReloadsWhileTheProcessStarts(t *testing.T) {
	m := reload.New(settings{}, func() (settings, error) { return settings{}, nil }, slog.New(slog.DiscardHandler), prometheus.NewRegistry())
	w := httptest.NewRecorder()
	m.ServeHTTP(w, httptest.NewRequest("POST", "/-/reload", nil))
	if w.Code != 503 {
		t.Errorf("%d %s", w.Code, w.Body)
	}
}
