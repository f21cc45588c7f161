package e2e

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"auspex/internal/sim/ledger"
	"auspex/schemas"
)

// blames says what each kind of fault has to be called; "/" starts the part of the
// resource that is to blame where the script names only what holds it.
var blames = map[string]struct{ fault, part string }{
	"feed_loss":      {"power.feed_loss", ""},
	"fabric_manager": {"service.fabric_manager", ""},
	"disk_failure":   {"host.disk_failure", ""},
	"gpu_fallen_off": {"gpu.fallen_off_bus", ""},
	"job_crash":      {"workload.error", ""},
	"ecc_ue":         {"gpu.memory_uncorrectable", ""},
	"psu_failure":    {"power.psu_failure", ""},
	"switch_failure": {"network.switch_failure", ""},
	"node_crash":     {"host.memory_uncorrectable", "/dimm5"},
}

// expected lists the incidents that the script of a running demo has to give.
func expected(t *testing.T, dir string) []string {
	t.Helper()
	var want []string
	for kind, faults := range planned(t, dir) {
		for _, f := range faults {
			if b, ok := blames[kind]; ok {
				want = append(want, f.Resource+b.part+" "+b.fault)
			}
		}
	}
	slices.Sort(want)
	return want
}

// sees waits until exactly the expected incidents are there.
func (p *product) sees(want []string) []incident {
	p.t.Helper()
	var found []incident
	p.await("the incidents of the script", func() error {
		all, names, err := p.judged()
		if err != nil {
			return err
		}
		found = all
		if d := cmp.Diff(want, names); d != "" {
			return errors.New("(-want +got)\n" + d)
		}
		return nil
	})
	return found
}

func TestDemoShowsEachFaultAsOneExplainedIncident(t *testing.T) {
	whole(t)
	dir := dataDir(t)
	args := []string{}
	alertmanager := os.Getenv("ALERTMANAGER_URL")
	if alertmanager != "" {
		args = append(args, "--set", "notify.alertmanagers=[{url: "+alertmanager+"}]")
	}
	late := measureLateness(t)
	began, begun := time.Now(), late.span()
	p := startDemo(t, dir, args...)
	t.Logf("ready after %s", time.Since(began).Round(100*time.Millisecond))
	want := expected(t, dir)
	if len(want) != 3 {
		t.Fatalf("the demo's script promises %q, want three incidents", want)
	}
	p.sees(want)
	begun.within(t, allShown, "all incidents")
	faults := planned(t, dir)

	t.Run("the feed's incident takes in the storm", func(t *testing.T) {
		p := p.in(t)
		p.awaitFor(time.Minute, "a storm of at least 60 events, most of them in the incident", func() error {
			feed := faults["feed_loss"][0]
			rack, storm := strings.Split(feed.Resource, "-")[1], 0 // pdu-r06-b
			for _, e := range output(t, dir) {                     // what the rack's controllers have logged since
				if e.Kind == ledger.KindRecord && e.Protocol != "kmsg" && strings.HasPrefix(e.Device, "gpu-"+rack+"-") && !e.Time.Before(feed.At) {
					storm++
				}
			}
			if storm < stormEvents {
				return fmt.Errorf("the rack has said %d things", storm)
			}
			all, _, err := p.judged()
			if err != nil {
				return err
			}
			for _, i := range all {
				if i.RootCause.Resource == feed.Resource {
					if len(i.Affected) < 8 || i.Alerts < stormEvents {
						return fmt.Errorf("%d alerts, %d resources affected", i.Alerts, len(i.Affected))
					}
					return nil
				}
			}
			return errors.New("the incident is gone")
		})
	})
	t.Run("the job's incident names its owner", func(t *testing.T) {
		p := p.in(t)
		job := faults["job_crash"][0].Resource
		owner := ""
		for _, e := range output(t, dir) {
			if e.Kind == ledger.KindJob && e.Device == job {
				_, rest, _ := strings.Cut(e.Message, " of ")
				owner, _, _ = strings.Cut(rest, " ")
				break
			}
		}
		if owner == "" {
			t.Fatalf("the ledger does not say whose %s is", job)
		}
		p.awaitFor(time.Minute, "explanation with the job and its owner "+owner, func() error {
			all, _, err := p.judged()
			if err != nil {
				return err
			}
			for _, i := range all {
				if i.RootCause.Resource == job {
					if !strings.Contains(i.Explanation, owner) || !strings.Contains(i.Explanation, job) {
						return fmt.Errorf("explanation: %s", i.Explanation)
					}
					return nil
				}
			}
			return errors.New("the incident is gone")
		})
	})
	t.Run("the GPU's incident proposes the ladder with its reasons and rails", func(t *testing.T) {
		p := p.in(t)
		gpu := faults["gpu_fallen_off"][0].Resource
		server, _, _ := strings.Cut(gpu, "/")
		p.await("proposed drain, power cycle and return", func() error {
			all, err := list[schemas.Action](p, "actions")
			if err != nil {
				return err
			}
			kinds := []string{}
			for _, a := range all {
				if a.Server != server {
					continue
				}
				kinds = append(kinds, a.Kind)
				if a.Mode != schemas.ModeDryRun || a.Why == "" || len(a.Rails) == 0 || a.State != schemas.ActionProposed {
					return fmt.Errorf("action %+v", a)
				}
			}
			slices.Sort(kinds)
			if d := cmp.Diff([]string{"drain", "power_cycle", "quarantine", "reinstall", "uncordon", "validate"}, kinds); d != "" {
				return errors.New(d)
			}
			return nil
		})
		for _, e := range output(t, dir) {
			if e.Kind == ledger.KindReset {
				t.Errorf("dry-run sent a reset: %+v", e)
			}
		}
	})
	t.Run("the fan that wears out is predicted", func(t *testing.T) {
		p := p.in(t)
		fan := faults["fan_wear"][0].Resource
		p.await("a prediction for "+fan, func() error {
			type prediction struct {
				Resource string    `json:"resource"`
				P10      time.Time `json:"eta_p10"`
				P50      time.Time `json:"eta_p50"`
				P90      time.Time `json:"eta_p90"`
			}
			all, err := list[prediction](p, "predictions")
			if err != nil {
				return err
			}
			for _, f := range all {
				if f.Resource == fan && !f.P10.IsZero() && !f.P50.IsZero() && !f.P90.IsZero() {
					if f.P50.Before(f.P10) || f.P90.Before(f.P50) {
						return fmt.Errorf("interval of %+v", f)
					}
					return nil
				}
			}
			return fmt.Errorf("%d predictions, none of it with an interval", len(all))
		})
		begun.within(t, allShown, "the prediction")
	})
	t.Run("memory and processor time", func(t *testing.T) { checkUsage(t, p, time.Since(began)) })
	t.Run("Alertmanager shows exactly three active alerts", func(t *testing.T) {
		p := p.in(t)
		peer(t, "ALERTMANAGER_URL")
		checkAlertmanager(t, p, alertmanager, want)
	})
	t.Run("promtool reads the query API", func(t *testing.T) { checkPromQL(t, p.in(t)) })
	t.Run("promtool accepts the product's own metrics", func(t *testing.T) { checkMetrics(t, p.in(t)) })
	t.Run("the terminal tells of each of them", func(t *testing.T) {
		for _, w := range want {
			p.in(t).await("a line for "+w, func() error { return has(p.out.String(), w) })
		}
	})
	t.Run("healthcheck says ready", func(t *testing.T) {
		if out, err := command(t, "healthcheck", "--url", p.url).CombinedOutput(); err != nil || strings.TrimSpace(string(out)) != "ready" {
			t.Errorf("%v: %s", err, out)
		}
	})
	t.Run("a second process on the same address says so in a sentence", func(t *testing.T) {
		_, address, _ := strings.Cut(strings.TrimSuffix(p.url, "/"), "://")
		other := dataDir(t)
		cmd := command(t, "run", "--data", other, "--listen", address, "--set", "store.clickhouse=off")
		oneSentence(t, cmd, address)
	})
	t.Run("a second process on the same data says so in a sentence", func(t *testing.T) {
		oneSentence(t, command(t, "run", "--data", dir, "--listen", "127.0.0.1:0"), dir)
	})

	early := recordCounts(output(t, dir))
	p.stores(early) // what is said after it may not be
	stop := late.span()
	p.interrupt()
	stop.within(t, longestStop, "Ctrl-C")
	if left := processesOf(dir); len(left) > 0 {
		t.Errorf("processes %v are left after Ctrl-C", left)
	}
	t.Run("the history holds every record of the ledger once", func(t *testing.T) { checkHistory(t, dir, early) })
}

// checkHistory compares the event table, read without FINAL, with the ledger: each
// record of the early ones stands there once, and no other does that was not said.
func checkHistory(t *testing.T, dir string, early map[string]int) {
	t.Helper()
	db := openHistory(t, dir)
	truth := recordCounts(output(t, dir))
	rows := rowCounts(events(t, db, "source IN ('ipmi', 'redfish', 'kmsg')"))
	for key := range truth {
		if rows[key] == 0 && early[key] == 0 {
			t.Logf("%s was said at the end, and is left for the next run", key)
			delete(truth, key)
		}
	}
	if diff := cmp.Diff(truth, rows); diff != "" {
		t.Errorf("records of the ledger (-) and of the table (+) differ:\n%s", diff)
	}
	t.Logf(
		"%d records, each once; %d rows of GPU telemetry, %d samples", len(truth), count(t, db, "SELECT count() FROM gpu"),
		count(t, db, "SELECT count() FROM samples"),
	)
	for _, r := range events(t, db, "server = '' AND source IN ('ipmi', 'redfish', 'kmsg') LIMIT 5") {
		t.Errorf("not enriched: %+v", r)
	}
	for _, q := range []string{"gpu WHERE server != '' AND rack != '' AND site = 'dc1'", "samples WHERE resource != '' AND site = 'dc1'"} {
		if count(t, db, "SELECT count() FROM "+q) == 0 {
			t.Errorf("no row of %s", q)
		}
	}
}

// rowCounts counts rows by source, device and record number. Epochs are left out:
// neither event log is erased while the tests run.
func rowCounts(rows []row) map[string]int {
	out := map[string]int{}
	for _, r := range rows {
		number := r.Attrs["record"]
		if r.Source == "kmsg" {
			number = r.Attrs["boot_id"] + "/" + r.Attrs["sequence"]
		}
		out[r.Source+" "+r.Device+" #"+number]++
	}
	return out
}

// recordCounts counts the records of the ledger under the same keys.
func recordCounts(truth []ledger.Entry) map[string]int {
	out := map[string]int{}
	for _, e := range truth {
		if e.Kind != ledger.KindRecord {
			continue
		}
		number := strconv.FormatUint(e.Record, 10)
		if e.Protocol == "kmsg" {
			number = e.Epoch + "/" + number
		}
		out[e.Protocol+" "+e.Device+" #"+number]++
	}
	return out
}

// checkAlertmanager asks a real Alertmanager for what it shows.
func checkAlertmanager(t *testing.T, p *product, base string, want []string) {
	t.Helper()
	var got []string
	p.await("three active alerts", func() error {
		var alerts []struct {
			Labels, Annotations map[string]string
			Status              struct{ State string }
		}
		out, err := exec.Command("curl", "-fsS", "--max-time", "10", base+"/api/v2/alerts?active=true&silenced=false&inhibited=false").Output()
		if err != nil {
			return err
		}
		if err := json.Unmarshal(out, &alerts); err != nil {
			return err
		}
		got = got[:0]
		for _, a := range alerts {
			if a.Labels["alertname"] != "AuspexIncident" || a.Labels["severity"] == "" || a.Labels["site"] != "dc1" || a.Labels["incident"] == "" {
				return fmt.Errorf("labels %v", a.Labels)
			}
			var text []string
			for _, k := range sortedKeys(a.Annotations) {
				text = append(text, a.Annotations[k])
			}
			got = append(got, strings.Join(text, " | "))
		}
		if len(got) != len(want) {
			return fmt.Errorf("%d active alerts: %q", len(got), got)
		}
		for _, w := range want {
			resource, _, _ := strings.Cut(w, " ")
			if !slices.ContainsFunc(got, func(s string) bool { return strings.Contains(s, resource) }) {
				return fmt.Errorf("none names %s: %q", resource, got)
			}
		}
		return nil
	})
	if amtool := os.Getenv("AMTOOL"); amtool != "" {
		out, err := exec.Command(
			amtool, "--alertmanager.url", base, "alert", "query", "-a", "alertname=AuspexIncident", "-o", "simple",
		).CombinedOutput()
		if err != nil || strings.Count(string(out), "AuspexIncident") != len(want) {
			t.Errorf("amtool: %v\n%s", err, out)
		}
	}
}

// checkPromQL lets promtool, a client that we did not write, read the query API.
func checkPromQL(t *testing.T, p *product) {
	t.Helper()
	promtool := peer(t, "PROMTOOL")
	base := p.url + "prometheus"
	dir := t.TempDir()
	for name, text := range map[string]string{
		"bearer.yml": "authorization: {type: Bearer, credentials: " + p.token + "}\n",
		"basic.yml":  "basic_auth: {username: any, password: " + p.token + "}\n",
	} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	now := time.Now()
	at := func(d time.Duration) string { return now.Add(d).UTC().Format(time.RFC3339) }
	for _, tc := range []struct {
		name, config string
		args         []string
		want         string
	}{
		{"instant", "bearer.yml", []string{"instant", base, `count(DCGM_FI_DEV_GPU_TEMP)`}, "=> 5"},
		{"instant, basic", "basic.yml", []string{"instant", base, `avg by (rack) (DCGM_FI_DEV_POWER_USAGE)`}, `{rack="dc1-r01"} =>`},
		{"rate", "bearer.yml", []string{"instant", base, `sum(rate(auspex_port_in_octets_total[2m]))`}, "=>"},
		{
			"range", "bearer.yml",
			[]string{"range", "--start=" + at(-time.Minute), "--end=" + at(0), "--step=10s", base, `max(auspex_server_inlet_temperature_celsius)`},
			"@[",
		},
		{"series", "basic.yml", []string{"series", "--match=auspex_fan_speed_rpm{server=\"gpu-r01-01\"}", base}, `resource="gpu-r01-01/fan1"`},
		{"labels", "bearer.yml", []string{"labels", base, "rack"}, "dc1-r08"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			args := append([]string{"query", tc.args[0], "--http.config.file=" + filepath.Join(dir, tc.config)}, tc.args[1:]...)
			out, err := exec.Command(promtool, args...).CombinedOutput()
			if err != nil || !strings.Contains(string(out), tc.want) {
				t.Errorf("promtool %q: %v, want %q in\n%s", args, err, tc.want, tail(string(out)))
			}
		})
	}
	out, err := exec.Command(promtool, "query", "instant", base, "up").CombinedOutput()
	if err == nil {
		t.Errorf("the query API answered without a token: %s", out)
	}
}

// checkMetrics lets promtool lint the product's own /metrics.
func checkMetrics(t *testing.T, p *product) {
	t.Helper()
	promtool := peer(t, "PROMTOOL")
	var text []byte
	if err := p.get("metrics", &text); err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(promtool, "check", "metrics")
	cmd.Stdin = bytes.NewReader(text)
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Errorf("%v\n%s", err, out)
	}
	for _, stage := range []string{
		"auspex_collectors_", "auspex_bus_", "auspex_detect_", "auspex_sink_", "auspex_correlator_", "auspex_control_", "auspex_store_",
	} {
		if !bytes.Contains(text, []byte("\n"+stage)) {
			t.Errorf("no metric of the stage %s", stage)
		}
	}
}

// oneSentence runs a command that has to fail with one sentence that names
// something.
func oneSentence(t *testing.T, cmd *exec.Cmd, names string) {
	t.Helper()
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	done := make(chan error, 1)
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	go func() { done <- cmd.Wait() }()
	var err error
	select {
	case err = <-done:
	case <-time.After(patience):
		_ = cmd.Process.Kill()
		<-done
		t.Fatalf("it runs on; standard error:\n%s", stderr.String())
	}
	if code := cmd.ProcessState.ExitCode(); err == nil || code != 1 {
		t.Errorf("exit status %d, want 1", code)
	}
	var lines []string
	for line := range strings.Lines(stderr.String()) {
		if strings.HasPrefix(line, "auspex: ") {
			lines = append(lines, line)
		}
	}
	if len(lines) != 1 || !strings.Contains(lines[0], names) || strings.Contains(stderr.String(), "goroutine ") {
		t.Errorf("want one sentence that names %s, got\n%s", names, stderr.String())
	}
}
