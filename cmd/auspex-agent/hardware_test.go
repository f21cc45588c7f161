package main

import (
	"encoding/csv"
	"encoding/json"
	"fmt"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	gpb "github.com/openconfig/gnmi/proto/gnmi"
	"github.com/openconfig/gnmic/pkg/api"
	gpath "github.com/openconfig/gnmic/pkg/api/path"
	"github.com/openconfig/gnoi/types"

	"auspex/internal/decode/gpuwatch"
)

// TestTheGPUsOfThisMachine runs the agent on real GPUs: what it tells is what nvidia-smi tells, a validation has
// each of them work and finds it sound, and reading costs little. It sets nothing and resets nothing.
func TestTheGPUsOfThisMachine(t *testing.T) {
	dir := os.Getenv("AUSPEX_HARDWARE")
	if dir == "" {
		t.Skip("AUSPEX_HARDWARE names no folder: this is for a machine with an NVIDIA GPU (make hardware)")
	}
	s := newServer(t)
	s.use(full)
	s.configure("nvml: {interval: 1s}\nhost: {interval: 1s}\nallow: {validate: [certificate CN=test]}\nacts: {validation: {memory: 30s, burst: 5s}}\n")
	s.start()
	s.shows("/gpus/gpu[name=gpu0]/state/missing", "false")
	beside(t, s)

	before, begun := processor(t, s.cmd.Process.Pid), time.Now()
	time.Sleep(10 * time.Second) // what it takes meanwhile is measured
	t.Logf("the agent takes %.2f %% of a core at a reading each second", 100*(processor(t, s.cmd.Process.Pid)-before).Seconds()/time.Since(begun).Seconds())

	began := time.Now()
	watched := s.watch(t)
	res, err := s.check("hardware", "2", &types.PathElem{Name: "gpus"})
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("the validation took %s: %s", time.Since(began).Round(time.Millisecond), res.GetStatus().GetStatus())
	close(watched.end)
	<-watched.done
	all := s.all()
	for path, v := range all {
		if strings.Contains(path, "/validation/test[") && strings.HasSuffix(path, "/result") {
			message := all[strings.TrimSuffix(path, "result")+"message"]
			t.Logf("%s %v: %v", path, v, message)
			if v == "failed" {
				t.Errorf("%s: %v", path, message)
			}
		}
	}
	b, err := json.MarshalIndent(all, "", " ")
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "agent.json"), b, 0o600); err != nil {
		t.Fatal(err)
	}
}

// watched is what was seen of a GPU that works.
type watched struct{ end, done chan struct{} }

// watch expects the process that works to be one of the GPU, as nvidia-smi has it, and the GPU to take power.
func (s *server) watch(t *testing.T) watched {
	t.Helper()
	w := watched{make(chan struct{}), make(chan struct{})}
	go func() {
		defer close(w.done)
		agreed, most := 0, map[string]float64{}
		defer func() {
			t.Logf("its process was seen %d times as nvidia-smi sees it; at most %v", agreed, most)
			if agreed == 0 {
				t.Error("the process that works was never seen")
			}
		}()
		for {
			select {
			case <-w.end:
				return
			case <-time.After(time.Second):
			}
			text, _ := exec.Command("nvidia-smi", "--query-compute-apps=pid,used_memory", "--format=csv,noheader,nounits").Output()
			all := s.all()
			for _, leaf := range []string{"power", "sm-clock", "temperature", "utilization", "memory-used", "memory-temperature"} {
				if v, ok := all["/gpus/gpu[name=gpu0]/state/"+leaf].(float64); ok {
					most[leaf] = max(most[leaf], v)
				}
			}
			pid, used, _ := strings.Cut(strings.TrimSpace(string(text)), ", ")
			for path, v := range all {
				if strings.HasSuffix(path, "/process[pid="+pid+"]/state/memory") {
					t.Logf("process %s has %v MiB, and %s MiB by nvidia-smi", pid, v, used)
					agreed++
				}
			}
		}
	}()
	return w
}

// all is everything that the agent tells.
func (s *server) all() map[string]any {
	s.t.Helper()
	req, err := api.NewGetRequest(api.Path("/"), api.EncodingPROTO())
	if err != nil {
		s.t.Fatal(err)
	}
	res, err := s.gnmic().Get(s.t.Context(), req)
	if err != nil {
		s.t.Fatal(err)
	}
	out := map[string]any{}
	for _, n := range res.GetNotification() {
		for _, u := range n.GetUpdate() {
			path := "/" + gpath.GnmiPathToXPath(u.GetPath(), false)
			switch v := u.GetVal().GetValue().(type) {
			case *gpb.TypedValue_UintVal:
				out[path] = float64(v.UintVal)
			case *gpb.TypedValue_IntVal:
				out[path] = float64(v.IntVal)
			case *gpb.TypedValue_DoubleVal:
				out[path] = v.DoubleVal
			case *gpb.TypedValue_BoolVal:
				out[path] = v.BoolVal
			case *gpb.TypedValue_StringVal:
				out[path] = v.StringVal
			}
		}
	}
	return out
}

// processor is the time that a process has had of the processors.
func processor(t *testing.T, pid int) time.Duration {
	t.Helper()
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		t.Fatal(err)
	}
	_, rest, _ := strings.Cut(string(b), ") ")
	f := strings.Fields(rest)
	user, _ := strconv.Atoi(f[11])
	system, _ := strconv.Atoi(f[12])
	return time.Duration(user+system) * 10 * time.Millisecond // USER_HZ is 100 wherever Linux is
}

// same are what nvidia-smi calls a leaf of a GPU, and by how much the two may differ: they are not read at once.
var same = []struct {
	query, leaf     string
	within, percent float64
}{
	{"uuid", "uuid", 0, 0},
	{"serial", "serial", 0, 0},
	{"name", "product", 0, 0},
	{"vbios_version", "vbios-version", 0, 0},
	{"inforom.img", "inforom-version", 0, 0},
	{"pci.bus_id", "pci", 0, 0},
	{"pstate", "performance-state", 0, 0},
	{"persistence_mode", "persistence", 0, 0},
	{"temperature.gpu", "temperature", 4, 0},
	{"temperature.memory", "memory-temperature", 4, 0},
	{"power.draw.average", "power", 5, 10},
	{"enforced.power.limit", "power-limit", 0, 0},
	{"power.limit", "power-limit-set", 0, 0},
	{"power.default_limit", "power-limit-default", 0, 0},
	{"power.min_limit", "power-limit-min", 0, 0},
	{"power.max_limit", "power-limit-max", 0, 0},
	{"clocks.current.sm", "sm-clock", 30, 5},
	{"clocks.current.memory", "memory-clock", 30, 5},
	{"clocks.max.sm", "sm-clock-max", 0, 0},
	{"clocks.applications.graphics", "application-sm-clock", 0, 0},
	{"clocks.applications.memory", "application-memory-clock", 0, 0},
	{"utilization.gpu", "utilization", 10, 0},
	{"utilization.memory", "memory-utilization", 10, 0},
	{"memory.used", "memory-used", 2, 1},
	{"memory.free", "memory-free", 2, 1},
	{"memory.reserved", "memory-reserved", 2, 1},
	{"ecc.mode.current", "ecc-enabled", 0, 0},
	{"ecc.mode.pending", "ecc-pending", 0, 0},
	{"mig.mode.current", "mig-enabled", 0, 0},
	{"ecc.errors.corrected.volatile.total", "ecc-corrected", 0, 0},
	{"ecc.errors.uncorrected.volatile.total", "ecc-uncorrected", 0, 0},
	{"ecc.errors.corrected.aggregate.total", "ecc-corrected-lifetime", 0, 0},
	{"ecc.errors.uncorrected.aggregate.total", "ecc-uncorrected-lifetime", 0, 0},
	{"retired_pages.single_bit_ecc.count", "retired-pages-corrected", 0, 0},
	{"retired_pages.double_bit.count", "retired-pages-uncorrected", 0, 0},
	{"pcie.link.gen.gpucurrent", "pcie-generation", 0, 0},
	{"pcie.link.gen.gpumax", "pcie-generation-max", 0, 0},
	{"pcie.link.width.current", "pcie-width", 0, 0},
	{"pcie.link.width.max", "pcie-width-max", 0, 0},
	{"fabric.state", "fabric-state", 0, 0},
}

// beside compares what the agent tells with what nvidia-smi does.
func beside(t *testing.T, s *server) {
	t.Helper()
	var query []string
	for _, c := range same {
		query = append(query, c.query)
	}
	text, err := exec.Command("nvidia-smi", "--query-gpu="+strings.Join(query, ","), "--format=csv,noheader,nounits").Output() //nolint:gosec // our own words
	if err != nil {
		t.Fatalf("nvidia-smi: %v: %s", err, text)
	}
	rows, err := csv.NewReader(strings.NewReader(string(text))).ReadAll()
	if err != nil {
		t.Fatal(err)
	}
	all := s.all()
	compared := 0
	for _, row := range rows {
		for i, c := range same {
			want := strings.TrimSpace(row[i])
			got, ok := "", false
			for n := range rows { // by its bus, not its number
				at := fmt.Sprintf("/gpus/gpu[name=gpu%d]/state/", n)
				if all[at+"pci"] == gpuwatch.PCI(strings.TrimSpace(row[5])) {
					var v any
					if v, ok = all[at+c.leaf]; ok {
						got = fmt.Sprint(v)
					}
				}
			}
			switch {
			case strings.Contains(want, "N/A") && (!ok || got == "0"):
				t.Logf("%s is %s, and of the agent %q", c.query, want, got)
			case !ok || !alike(want, got, c.within, c.percent):
				t.Errorf("%s is %s, and %s of the agent %q", c.query, want, c.leaf, got)
			default:
				compared++
			}
		}
	}
	t.Logf("%d values of %d GPUs are those of nvidia-smi", compared, len(rows))
	if compared < len(same)/2*max(1, len(rows)) {
		t.Error("that is too few to tell anything")
	}
}

// alike says whether two words or numbers mean the same.
func alike(want, got string, within, percent float64) bool {
	switch want {
	case "Enabled":
		return got == "true" || got == "1"
	case "Disabled":
		return got == "false" || got == "0"
	}
	a, err1 := strconv.ParseFloat(strings.TrimPrefix(want, "P"), 64)
	b, err2 := strconv.ParseFloat(strings.TrimPrefix(got, "P"), 64)
	if err1 == nil && err2 == nil {
		return math.Abs(a-b) <= within+percent/100*math.Abs(a)+1e-9
	}
	return want == got || gpuwatch.PCI(want) == got
}
