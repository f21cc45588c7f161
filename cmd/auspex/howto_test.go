package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"auspex/correlator/notify"
	"auspex/internal/bus"
	"auspex/internal/bus/mem"
	"auspex/internal/store/records"
	"auspex/internal/waittest"
	"auspex/schemas"
)

var block = regexp.MustCompile("(?s)([^\n]*)\n\n```(\\w+)\n(.*?)```")

// TestAddAFaultDoesWhatItSays writes the files of the how-to, runs its commands, and
// holds what comes out against what it shows: an incident of the new fault in both
// languages, and a notification.
func TestAddAFaultDoesWhatItSays(t *testing.T) {
	doc, err := os.ReadFile("../../docs/how-to/add-a-fault.md")
	if err != nil {
		t.Fatal(err)
	}
	t.Chdir(t.TempDir())
	run := func(args ...string) (int, string) {
		var out bytes.Buffer
		code := command(t.Context(), args, IO{In: strings.NewReader(""), Out: &out, Err: &out})
		return code, out.String()
	}
	file := regexp.MustCompile("`([\\w./]+\\.(?:yaml|json|jsonl))`")
	var last schemas.Incident
	seen := 0
	for _, m := range block.FindAllSubmatch(doc, -1) {
		before, kind, text := string(m[1]), string(m[2]), string(m[3])
		name := ""
		if f := file.FindStringSubmatch(before); f != nil {
			name = f[1]
		}
		switch {
		case strings.HasPrefix(before, "The last line of"):
			var got, want map[string]any
			lines := bytes.Split(bytes.TrimSpace(readFile(t, name)), []byte("\n"))
			for i, v := range []any{&got, &last} {
				if err := json.Unmarshal(lines[len(lines)-1], v); err != nil {
					t.Fatal(i, err)
				}
			}
			if err := json.Unmarshal([]byte(text), &want); err != nil {
				t.Fatal(err)
			}
			contains(t, "", got, want)
		case kind == "sh":
			if code, out := run(strings.Fields(text)[1:]...); code != 0 {
				t.Fatalf("%s: %s", text, out)
			}
		case strings.HasPrefix(before, "A mistake is named"):
			good := readFile(t, "faults/cooling.coolant_leak.yaml")
			write(t, "faults/cooling.coolant_leak.yaml", strings.Replace(string(good), "[server]", "[sever]", 1))
			if code, out := run("replay", "--topology", "topology.json", "--events", "events.jsonl", "--faults", "faults", "--out", "-"); code != 1 ||
				!strings.Contains(out, strings.TrimSpace(text)) {
				t.Errorf("exit status %d: %s", code, out)
			}
			write(t, "faults/cooling.coolant_leak.yaml", string(good))
		case name != "":
			write(t, name, text)
		default:
			continue
		}
		seen++
	}
	if seen != 7 {
		t.Errorf("the how-to has %d blocks that mean something", seen)
	}
	write(t, "auspex.yaml", string(readFile(t, "auspex.yaml"))+"inventory: {file: topology.json}\nstore: {clickhouse: \"off\"}\n")
	if code, out := run("config", "check", "-c", "auspex.yaml"); code != 0 {
		t.Errorf("config check: %s", out)
	}
	notified(t, last)
}

// notified sends an incident to an Alertmanager and looks at what arrives.
func notified(t *testing.T, inc schemas.Incident) {
	t.Helper()
	posts := make(chan []notify.Alert, 8)
	am := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		var alerts []notify.Alert
		if err := json.NewDecoder(r.Body).Decode(&alerts); err == nil {
			posts <- alerts
		}
	}))
	defer am.Close()
	b := mem.New(1)
	defer func() { _ = b.Close() }()
	cfg := notify.DefaultConfig()
	cfg.Alertmanagers = []notify.Target{notify.DefaultTarget(am.URL)}
	n := notify.New(cfg, nobody{}, b, slog.New(slog.DiscardHandler), nil)
	ctx, cancel := context.WithCancel(t.Context())
	done, ready := make(chan error, 1), make(chan struct{})
	go func() { done <- n.Run(ctx, func() { close(ready) }) }()
	<-ready
	defer func() {
		cancel()
		if err := <-done; err != nil {
			t.Errorf("stopped with %v", err)
		}
	}()
	inc.Closed = nil
	raw, err := json.Marshal(inc)
	if err != nil {
		t.Fatal(err)
	}
	if err := b.Publish(t.Context(), bus.Message{Topic: schemas.TopicIncidents, Key: inc.ID, Value: raw}); err != nil {
		t.Fatal(err)
	}
	got := (<-posts)[0].Annotations
	for key, want := range map[string]string{
		"description": inc.Explanation, "description_zh": inc.Explanations["zh"], "fault_title": "Coolant leak", "fault_title_zh": "冷却液泄漏",
		"next_step": "Drain s1, switch it off and look for the leak.", "next_step_zh": "排空 s1，断电后查找漏点。",
	} {
		if got[key] != want {
			t.Errorf("annotation %s is %q, want %q", key, got[key], want)
		}
	}
}

type nobody struct{}

func (nobody) Incidents(context.Context, records.Filter) ([]schemas.Incident, string, error) {
	return nil, "", nil
}

// contains holds every value of want against the same place in got.
func contains(t *testing.T, path string, got, want any) {
	t.Helper()
	w, ok := want.(map[string]any)
	g, same := got.(map[string]any)
	if ok && same {
		for k, v := range w {
			contains(t, path+"."+k, g[k], v)
		}
		return
	}
	if fmt.Sprint(got) != fmt.Sprint(want) {
		t.Errorf("%s is %v, the how-to says %v", path, got, want)
	}
}

func readFile(t *testing.T, name string) []byte {
	t.Helper()
	b, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func write(t *testing.T, name, text string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(name), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

// TestAFaultOfTheSiteIsInTheConsole: a site measures something of its own, says in a record what it means, and the
// product that runs names that cause, in both languages, lists it for corrections, and takes one.
func TestAFaultOfTheSiteIsInTheConsole(t *testing.T) {
	s := &site{dir: t.TempDir(), hup: make(chan struct{})}
	s.write(t, "records/host.clogged_filter.yaml", `fault: host.clogged_filter
title: {en: Clogged filter, zh: 滤网堵塞}
summary: {en: "The dust filter of {resource} is clogged.", zh: "{resource} 的滤网堵塞。"}
kinds: [server]
prior: -5
do: {action: ticket, target: self}
step: {en: "Clean the filter of {target}.", zh: "清洁 {target} 的滤网。"}
signs:
  thin_air:
    title: {en: too little air, zh: 风量不足}
    events: [site.airflow]
    leak: 0.0001
shows:
  - {sign: thin_air, p: 0.97, m: 0.95, within: 30m, before: 60s}
declares: {events: [site.airflow]}
`)
	often := strings.Replace(siteConfig, "rules: {builtin: false", "rules: {interval: 1s, builtin: false", 1)
	s.start(t, often+"correlator: {faults: [DIR/records]}\n")
	s.write(t, "rules.yml", siteRules+"- name: air\n  rules:\n"+
		"  - {alert: Air, expr: vector(1) > 0, labels: {resource: s1, type: site.airflow, severity: error}}\n")
	if status, r := s.reload(t); status != http.StatusOK {
		t.Fatalf("%d %+v", status, r)
	}
	call := asker{s.url, s.token}.caller(t)
	var list struct{ Items []schemas.Incident }
	waittest.Until(t, func() error {
		if call(http.MethodGet, "incidents", "", &list); len(list.Items) != 1 {
			return fmt.Errorf("%d incidents", len(list.Items))
		}
		return nil
	})
	var inc schemas.Incident
	call(http.MethodGet, "incidents/"+list.Items[0].ID, "", &inc)
	if inc.RootCause.Resource != "s1" || inc.RootCause.Fault != "host.clogged_filter" || inc.RootCause.Title["zh"] != "滤网堵塞" ||
		!strings.HasPrefix(inc.Explanation, "The dust filter of s1 is clogged.") ||
		!strings.HasPrefix(inc.Explanations["zh"], "s1 的滤网堵塞。") {
		t.Errorf("%+v", inc)
	}
	var faults any
	if call(http.MethodGet, "faults", "", &faults); !strings.Contains(fmt.Sprint(faults), "host.clogged_filter") {
		t.Errorf("it cannot be named in a correction: %v", faults)
	}
	var c schemas.Correction
	call(http.MethodPost, "incidents/"+inc.ID+"/corrections", `{"verdict": "right"}`, &c)
	if c.Fault != "host.clogged_filter" {
		t.Errorf("%+v", c)
	}
}
