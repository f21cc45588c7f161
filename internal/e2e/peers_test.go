package e2e

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"auspex/schemas"
)

// write puts a file into a folder and returns its path.
func write(t *testing.T, dir, name, text string) string {
	t.Helper()
	path := filepath.Join(dir, name)
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// site writes an inventory of the given resources and the credential that ipmi_sim
// wants, and returns the settings for both.
func site(t *testing.T, dir string, resources ...schemas.Resource) []string {
	t.Helper()
	all := append(
		[]schemas.Resource{{ID: "dc1", Kind: schemas.KindSite}, {ID: "dc1-r01", Kind: schemas.KindRack, Parent: "dc1"}}, resources...,
	)
	b, err := json.Marshal(schemas.Topology{Version: 1, Resources: all})
	if err != nil {
		t.Fatal(err)
	}
	return []string{
		"--set", "site=dc1",
		"--set", "inventory.file=" + write(t, dir, "topology.json", string(b)),
		"--set", "secrets=" + write(t, dir, "secrets.yaml", "bmc: {user: admin, password: secret}\n"),
	}
}

// console sends commands to ipmi_sim's console.
func console(t *testing.T, port string, commands ...string) {
	t.Helper()
	out, err := exec.Command("python3", append([]string{"../../test/peers/ipmi/con.py", port}, commands...)...).CombinedOutput()
	if err != nil {
		t.Fatalf("console of ipmi_sim: %v\n%s", err, out)
	}
}

// bmcs returns address and console port of each ipmi_sim.
func bmcs(t *testing.T) (addresses, consoles []string) {
	t.Helper()
	addresses, consoles = strings.Fields(peer(t, "IPMI_BMCS")), strings.Fields(peer(t, "IPMI_CONSOLES"))
	for i, c := range consoles {
		_, consoles[i], _ = strings.Cut(c, ":")
	}
	return addresses, consoles
}

func ipmitool(t *testing.T, address, user, password string, args ...string) string {
	t.Helper()
	host, port, _ := strings.Cut(address, ":")
	all := append([]string{"-I", "lanplus", "-C", "3", "-H", host, "-p", port, "-U", user, "-P", password, "-N", "5", "-R", "3"}, args...)
	out, err := exec.Command("ipmitool", all...).CombinedOutput()
	if err != nil {
		t.Fatalf("ipmitool %q: %v\n%s", args, err, out)
	}
	return string(out)
}

func TestSELEventsOfIPMISimArriveOnceOverARestart(t *testing.T) {
	beside(t)
	addresses, consoles := bmcs(t)
	address, con := addresses[0], consoles[0]
	dir := dataDir(t)
	args := append(site(t, dir,
		schemas.Resource{
			ID: "node-1", Kind: schemas.KindServer, Parent: "dc1-r01",
			Attrs: schemas.AttrsOf(map[string]string{schemas.AttrIPMIIP: address, schemas.AttrCredential: "bmc"}),
		},
		schemas.Resource{ID: "node-1/gpu0", Kind: schemas.KindGPU, Parent: "node-1"},
		schemas.Resource{ID: "node-1/psu1", Kind: "psu", Parent: "node-1"},
	), "--set", "collectors.ipmi={interval: 1s, sensor_interval: 5s}")

	entries := func() int {
		m := regexp.MustCompile(`Entries\s+: (\d+)`).FindStringSubmatch(ipmitool(t, address, "admin", "secret", "sel", "info"))
		if m == nil {
			t.Fatal("ipmitool sel info: no number of entries")
		}
		n := 0
		fmt.Sscan(m[1], &n)
		return n
	}
	before := entries()
	p := launch(t, dir, args...)
	p.ready()
	alert := func(p *product, resource, kind, status string) func() error {
		return func() error {
			all, err := list[schemas.Alert](p, "alerts")
			if err != nil {
				return err
			}
			if !slices.ContainsFunc(all, func(a schemas.Alert) bool {
				return a.Resource == resource && a.Type == kind && a.Status == status && a.Server == "node-1" && a.Rack == "dc1-r01"
			}) {
				return fmt.Errorf("%d alerts, none is %s %s %s", len(all), resource, kind, status)
			}
			return nil
		}
	}
	console(t, con, "sensor_set_value 0x20 0 1 0x5b 1") // GPU0 at 91 °C: two thresholds of it are passed
	p.await("alert over the GPU's temperature", alert(p, "node-1/gpu0", "temp.high", schemas.AlertFiring))
	p.kill()
	console(t, con, "sensor_set_bit 0x20 0 25 3 1 1") // PSU1 loses its input while nobody reads
	p = launch(t, dir, args...)
	p.ready()
	p.await("alert over the power supply", alert(p, "node-1/psu1", "psu.input_lost", schemas.AlertFiring))
	console(t, con, "sensor_set_value 0x20 0 1 0x30 1", "sensor_set_bit 0x20 0 25 3 0 1")
	p.await("the temperature is over", alert(p, "node-1/gpu0", "temp.high", schemas.AlertResolved))
	p.await("readings of the sensors", func() error {
		var b []byte
		if err := p.get("prometheus/api/v1/query?query=auspex_gpu_temperature_celsius", &b); err != nil {
			return err
		}
		return has(string(b), `"node-1/gpu0"`)
	})
	records := func() map[string]int {
		out := map[string]int{}
		for line := range strings.Lines(ipmitool(t, address, "admin", "secret", "sel", "list")) {
			id, _, ok := strings.Cut(line, "|")
			if n := 0; ok {
				if _, err := fmt.Sscanf(strings.TrimSpace(id), "%x", &n); err != nil {
					t.Fatalf("line of the SEL: %s", line)
				}
				out[strconv.Itoa(n)] = 1
			}
		}
		return out
	}
	p.await("the history holds the records of the SEL", func() error {
		rows, err := p.rows("source = 'ipmi' AND type != 'bmc.clock_skew'")
		if want := records(); err == nil && len(rows) < len(want) {
			err = fmt.Errorf("%d rows of %d records", len(rows), len(want))
		}
		return err
	})
	p.interrupt()

	db := openHistory(t, dir)
	got := map[string]int{}
	for _, r := range events(t, db, "source = 'ipmi'") {
		if r.Type != schemas.EventBMCClockSkew { // its clock begins in 1970
			got[r.Attrs["record"]]++
		}
	}
	if d := cmp.Diff(records(), got); d != "" {
		t.Errorf("records of the SEL by ipmitool (-) and rows of the table (+):\n%s", d)
	}
	if n := entries(); n <= before+2 {
		t.Errorf("ipmi_sim has %d entries and had %d: nothing was injected", n, before)
	}
}

func TestALostGPUIsDrainedOnRealSlurmAndCycledByARealBMC(t *testing.T) {
	beside(t)
	addresses, _ := bmcs(t)
	if len(addresses) < 2 {
		t.Fatal("two BMCs are needed: ipmi.sh start DIR 2")
	}
	rest, token := peer(t, "SLURM_REST"), peer(t, "SLURM_TOKEN")
	conf := peer(t, "SLURM_CONF")
	enter := strings.Fields(os.Getenv("SLURM_RUN")) // how to run Slurm's tools; empty here
	tool := func(args ...string) string {
		t.Helper()
		all := append(slices.Clone(enter), args...)
		cmd := exec.Command(all[0], all[1:]...)
		cmd.Env = append(os.Environ(), "SLURM_CONF="+conf)
		out, err := cmd.CombinedOutput()
		if err != nil {
			t.Fatalf("%q: %v\n%s", args, err, out)
		}
		return string(out)
	}
	dir := dataDir(t)
	kmsg := write(t, dir, "kmsg", "6,1,1000,-;Linux version 6.1.0\n")
	// What dcgm-exporter says: nothing while the server boots, and GPU 3 is missing once it is lost.
	var lost, boots atomic.Bool
	var scrapes atomic.Int64
	exporter := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		if boots.Load() {
			panic(http.ErrAbortHandler)
		}
		fmt.Fprintln(w, "# TYPE DCGM_FI_DEV_GPU_TEMP gauge")
		warmer := int(scrapes.Add(1) % 2) // what works is never read alike for long
		for g := range 8 {
			if g != 3 || !lost.Load() {
				fmt.Fprintf(
					w,
					"DCGM_FI_DEV_GPU_TEMP{gpu=\"%d\",UUID=\"GPU-%d\",pci_bus_id=\"00000000:%02x:00.0\",device=\"nvidia%d\",modelName=\"H100\",Hostname=\"gpu1\"} %d\n",
					g, g, 0x10+g, g, 40+g+warmer,
				)
			}
		}
	}))
	t.Cleanup(exporter.Close)
	var resources []schemas.Resource
	for i := range 4 {
		name := fmt.Sprintf("gpu%d", i+1)
		r := schemas.Resource{ID: name, Kind: schemas.KindServer, Parent: "dc1-r01"}
		if i == 0 {
			r.Attrs = schemas.AttrsOf(map[string]string{
				schemas.AttrIPMIIP: addresses[1], schemas.AttrCredential: "bmc", schemas.AttrKmsgPath: kmsg,
				schemas.AttrExporterURL: exporter.URL + "/metrics",
			})
		}
		resources = append(resources, r)
		for g := range 8 {
			resources = append(resources, schemas.Resource{
				ID: fmt.Sprintf("%s/gpu%d", name, g), Kind: schemas.KindGPU, Parent: name,
				Attrs: schemas.AttrsOf(map[string]string{"pci": fmt.Sprintf("0000:%02x:00.0", 0x10+g)}),
			})
		}
	}
	tokenFile := write(t, dir, "slurm.token", token+"\n")
	scontrol := strings.Join(append(slices.Clone(enter), "env", "SLURM_CONF="+conf, "scontrol"), ", ")
	args := append(site(t, dir, resources...),
		"--set", "collectors.kmsg={}", "--set", "collectors.dcgmexporter.interval=1s", "--set",
		"collectors.ipmi={interval: 1s, sensor_interval: 2s}",
		"--set", "collectors.slurm.interval=1s", "--set", "collectors.slurm.url="+rest, "--set", "collectors.slurm.token_file="+tokenFile,
		"--set", "control.slurm.url="+rest, "--set", "control.slurm.token_file="+tokenFile, "--set", "control.slurm.scontrol=["+scontrol+"]",
		"--set", "control.policies=testdata/host.yaml", "--mode", "enforce", "--set", "store.clickhouse=off")
	for _, node := range []string{"gpu1", "gpu2", "gpu3", "gpu4"} {
		if strings.Contains(tool("scontrol", "-o", "show", "node", node), "DRAIN") {
			tool("scontrol", "update", "NodeName="+node, "State=RESUME")
		}
	}
	p := launch(t, dir, args...)
	p.ready()

	t.Run("a job that fails is told with its owner", func(t *testing.T) {
		p := p.in(t)
		// The nodes 3 and 4, so that the GPU that is lost below has nothing to do with it.
		id := strings.TrimSpace(
			tool("sbatch", "--parsable", "-N2", "-w", "gpu3,gpu4", "-o", "/dev/null", "--chdir=/tmp", "--wrap", "sleep 4; exit 3"),
		)
		p.await("alert over the job", func() error {
			all, err := list[schemas.Alert](p, "alerts")
			if err != nil {
				return err
			}
			for _, a := range all {
				if a.Type == "workload.failed" && strings.HasSuffix(a.Resource, id) {
					if !strings.Contains(a.Attrs["owner"], "root") {
						return fmt.Errorf("its owner: %v", a.Attrs)
					}
					return nil
				}
			}
			return fmt.Errorf("none of %d alerts is over job %s", len(all), id)
		})
	})

	t.Run("a maintenance reservation is a window of its nodes until it is deleted", func(t *testing.T) {
		p := p.in(t)
		tool("scontrol", "create", "reservation", "ReservationName=racks", "StartTime=now", "Duration=10",
			"Users=root", "Flags=MAINT,IGNORE_JOBS", "Nodes=gpu2")
		gone := false
		t.Cleanup(func() {
			if !gone {
				tool("scontrol", "delete", "ReservationName=racks")
			}
		})
		window := func(ended bool) func() error {
			return func() error {
				all, err := list[schemas.Maintenance](p, "maintenance")
				if err != nil {
					return err
				}
				for _, m := range all {
					if slices.Equal(m.Resources, []string{"gpu2"}) && m.Reason == "Slurm reservation racks" && (m.Ended != nil) == ended {
						return nil
					}
				}
				return fmt.Errorf("windows: %+v", all)
			}
		}
		p.await("the window of the reservation", window(false))
		tool("scontrol", "delete", "ReservationName=racks")
		gone = true
		p.await("its end", window(true))
	})

	job := strings.TrimSpace(tool("sbatch", "--parsable", "-N1", "-w", "gpu1", "-o", "/dev/null", "--chdir=/tmp", "--wrap", "sleep 300"))
	t.Cleanup(func() { tool("scancel", job) })
	p.await("the job runs", func() error { return has(tool("squeue", "-h", "-o", "%i %T"), job+" RUNNING") })

	lost.Store(true)
	f, err := os.OpenFile(kmsg, os.O_APPEND|os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	for i, line := range []string{
		"NVRM: Xid (PCI:0000:13:00): 79, pid='<unknown>', name=<unknown>, GPU has fallen off the bus.",
		"NVRM: GPU 0000:13:00.0: GPU has fallen off the bus.",
	} {
		fmt.Fprintf(f, "3,%d,%d,-;%s\n", 100+i, 5_000_000+i, line)
	}
	f.Close()

	node := func() string { return tool("scontrol", "-o", "show", "node", "gpu1") }
	p.await("Slurm drains the node", func() error { return has(node(), "DRAIN") })
	if s := node(); !strings.Contains(s, "Reason=auspex:") {
		t.Errorf("reason of the drain: %s", s)
	}
	// The job still runs: no power cycle before it has ended.
	time.Sleep(3 * time.Second) // in which it could be sent wrongly
	acts, err := p.actionsOn("gpu1")
	if err != nil {
		t.Fatal(err)
	}
	if a := acts["power_cycle"]; a.State == schemas.ActionRunning || a.State == schemas.ActionVerifying || a.State == schemas.ActionDone {
		t.Errorf("the power cycle is %s while job %s runs", a.State, job)
	}
	if out := ipmitool(t, addresses[1], "admin", "secret", "power", "status"); !strings.Contains(out, "is on") {
		t.Errorf("power: %s", out)
	}
	tool("scancel", job)
	p.await("the power cycle was sent", func() error {
		acts, err := p.actionsOn("gpu1")
		if err == nil && acts["power_cycle"].State != schemas.ActionVerifying {
			err = fmt.Errorf("it is %q", acts["power_cycle"].State)
		}
		return err
	})
	boots.Store(true)
	time.Sleep(5 * time.Second) // in which a server boots, and nothing on it answers
	lost.Store(false)           // the driver finds it then
	boots.Store(false)
	p.repaired("gpu1", "power_cycle")
	p.await("the node is back in the pool", func() error {
		if s := node(); strings.Contains(s, "DRAIN") {
			return errors.New(s)
		}
		return nil
	})
	acts, err = p.actionsOn("gpu1")
	if err != nil {
		t.Fatal(err)
	}
	for kind, a := range acts {
		t.Logf("%s: %s", kind, a.VerifiedBy)
	}
	p.interrupt()
}

func TestPromtoolAcceptsOurRules(t *testing.T) {
	promtool := peer(t, "PROMTOOL")
	files, err := filepath.Glob("../../dashboards/rules/*.y*ml")
	if err != nil || len(files) == 0 {
		t.Fatalf("no rule files: %v", err)
	}
	if out, err := exec.Command(
		promtool, append([]string{"check", "rules", "--lint=all", "--lint-fatal"}, files...)...,
	).CombinedOutput(); err != nil {
		t.Errorf("promtool check rules: %v\n%s", err, out)
	}
	tests, err := filepath.Glob("../../dashboards/rules/tests/*.y*ml")
	if err != nil {
		t.Fatal(err)
	}
	if out, err := exec.Command(promtool, append([]string{"test", "rules"}, tests...)...).CombinedOutput(); len(tests) > 0 && err != nil {
		t.Errorf("promtool test rules: %v\n%s", err, out)
	}
}
