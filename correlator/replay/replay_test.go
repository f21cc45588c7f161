package replay

import (
	"bytes"
	"compress/gzip"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/klauspost/compress/zstd"

	"auspex/schemas"
)

const replayTopology = `{"version":1,"resources":[
 {"id":"dc1","kind":"site"},{"id":"r1","kind":"rack","parent":"dc1"},
 {"id":"pdu-a","kind":"pdu","parent":"r1","attrs":{"feed":"A"}},
 {"id":"h1","kind":"server","parent":"r1"},{"id":"h1/psu0","kind":"psu","parent":"h1"},{"id":"h1/psu1","kind":"psu","parent":"h1"},
 {"id":"h2","kind":"server","parent":"r1"},{"id":"h2/psu0","kind":"psu","parent":"h2"},{"id":"h2/psu1","kind":"psu","parent":"h2"},
 {"id":"h1/gpu0","kind":"gpu","parent":"h1"}],
 "links":[{"from":"pdu-a","to":"h1/psu0","kind":"powers"},{"from":"pdu-a","to":"h1/psu1","kind":"powers"},
 {"from":"pdu-a","to":"h2/psu0","kind":"powers"},{"from":"pdu-a","to":"h2/psu1","kind":"powers"}]}`

const replayEvents = `{"id":"e1","time":"2026-01-01T00:00:00Z","observed":"2026-01-01T00:00:01Z","source":"kmsg","resource":"h1/gpu0","type":"gpu.xid","code":"79","severity":"critical"}

{"id":"e2","time":"2026-01-01T00:00:00Z"
{"id":"e3","time":"2026-01-01T00:00:02Z","observed":"2026-01-01T00:00:03Z","source":"kmsg","resource":"h1/gpu0","type":"gpu.xid","code":"154","severity":"error","unknown":1}
`

const replayMetrics = `# TYPE auspex_psu_input_power_watts gauge
auspex_psu_input_power_watts{resource="h1/psu0"} 400 1767225600
auspex_psu_input_power_watts{resource="h1/psu0"} 0 1767229200
auspex_psu_input_power_watts{resource="h1/psu1"} 400 1767225600
auspex_psu_input_power_watts{resource="h1/psu1"} 0 1767229200
auspex_psu_input_power_watts{resource="h2/psu0"} 400 1767225600
auspex_psu_input_power_watts{resource="h2/psu0"} 0 1767229201
auspex_psu_input_power_watts{resource="h2/psu1"} 400 1767225600
auspex_psu_input_power_watts{resource="h2/psu1"} 0 1767229201
# EOF
`

func replayFiles(t *testing.T) (topology, events, metrics string) {
	t.Helper()
	dir := t.TempDir()
	var gz bytes.Buffer
	w := gzip.NewWriter(&gz)
	_, _ = w.Write([]byte(replayTopology))
	_ = w.Close()
	z, err := zstd.NewWriter(nil)
	if err != nil {
		t.Fatal(err)
	}
	for name, doc := range map[string][]byte{
		"topology.json.gz": gz.Bytes(), "events.jsonl.zst": z.EncodeAll([]byte(replayEvents), nil), "metrics.om": []byte(replayMetrics),
	} {
		if err := os.WriteFile(filepath.Join(dir, name), doc, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return filepath.Join(dir, "topology.json.gz"), filepath.Join(dir, "events.jsonl.zst"), filepath.Join(dir, "metrics.om")
}

func TestReplayNamesBadLinesAndGoesOn(t *testing.T) {
	topology, events, metrics := replayFiles(t)
	var out, errs bytes.Buffer
	res, err := Run(t.Context(), Options{Topology: topology, Events: events, Metrics: metrics, Out: "-", Stdout: &out, Stderr: &errs})
	if err != nil {
		t.Fatal(err)
	}
	if res.Bad != 1 || res.Events != 6 || res.Incidents != 2 {
		t.Errorf("result %+v", res)
	}
	if !strings.Contains(errs.String(), "events.jsonl.zst:3: ") {
		t.Errorf("the bad line is not named: %s", errs.String())
	}
	last := map[string]schemas.Incident{}
	for d := json.NewDecoder(&out); d.More(); {
		var inc schemas.Incident
		if err := d.Decode(&inc); err != nil {
			t.Fatal(err)
		}
		last[inc.RootCause.Resource+" "+inc.RootCause.Fault] = inc
	}
	for want, n := range map[string]int{"h1/gpu0 gpu.fallen_off_bus": 2, "pdu-a power.feed_loss": 4} {
		if inc := last[want]; len(inc.Events) != n || inc.Explanation == "" || inc.Recommendation == nil {
			t.Errorf("%s: %+v", want, inc)
		}
	}
}

func TestStrictReplayStopsAtTheFirstBadLine(t *testing.T) {
	topology, events, _ := replayFiles(t)
	var out, errs bytes.Buffer
	_, err := Run(t.Context(), Options{Topology: topology, Events: events, Out: "-", Strict: true, Stdout: &out, Stderr: &errs})
	if err == nil || !strings.Contains(err.Error(), "events.jsonl.zst:3: ") {
		t.Errorf("error %v", err)
	}
}

func TestReplayReadsStandardInput(t *testing.T) {
	topology, _, _ := replayFiles(t)
	var out, errs bytes.Buffer
	res, err := Run(t.Context(), Options{
		Topology: topology, Events: "-", Out: "-", Stdin: strings.NewReader(replayEvents), Stdout: &out, Stderr: &errs,
	})
	if err != nil || res.Events != 2 {
		t.Errorf("result %+v, error %v", res, err)
	}
}

func FuzzParseEvent(f *testing.F) {
	for line := range strings.Lines(replayEvents) {
		f.Add([]byte(line))
	}
	f.Fuzz(func(t *testing.T, line []byte) {
		var ev schemas.Event
		err := new(decoder).parse(line, &ev)
		if err == nil && (ev.ID == "" || ev.Resource == "" || ev.Type == "") {
			t.Errorf("%q is taken as %+v", line, ev)
		}
	})
}
