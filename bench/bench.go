// Package bench measures the product: what a scenario reports and how processor
// time is counted, data with the entropy of real telemetry, and the peers that
// play devices in processes of their own, so that their work is not counted.
// The scenarios drive the product that cmd/auspex wires, through [Product].
package bench

import (
	"math"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// Result is what a scenario prints (formats, section 7).
type Result struct {
	Scenario     string  `json:"scenario"`
	Unit         string  `json:"unit"` // what n counts
	N            int64   `json:"n"`
	Seconds      float64 `json:"seconds"`
	CPUSeconds   float64 `json:"cpu_seconds"` // of the product's processes, the embedded engine included
	PerSecond    float64 `json:"per_second"`
	PerCPUSecond float64 `json:"per_cpu_second"`
	// P50 and P99 are of the duration that Timed names, in milliseconds; null
	// where the scenario times nothing apart.
	P50    *float64 `json:"p50_ms"`
	P99    *float64 `json:"p99_ms"`
	MaxRSS int64    `json:"max_rss_bytes"` // of the same processes, each at its peak, added up
	Go     string   `json:"go"`
	CPU    string   `json:"cpu"`
	Timed  string   `json:"timed,omitempty"`
	// Detail is what the check of the scenario found.
	Detail map[string]any `json:"detail,omitempty"`
}

// Latencies puts the percentiles of durations into a result; none leave it as it is.
func (r *Result) Latencies(timed string, ds []time.Duration) {
	if len(ds) == 0 {
		return
	}
	r.Timed = timed
	r.P50, r.P99 = ms(Quantile(ds, 0.50)), ms(Quantile(ds, 0.99))
}

func ms(d time.Duration) *float64 {
	v := math.Round(float64(d.Microseconds())) / 1e3
	return &v
}

// Quantile returns the nearest-rank quantile q, in [0,1], of durations, and 0 of none.
func Quantile(ds []time.Duration, q float64) time.Duration {
	if len(ds) == 0 {
		return 0
	}
	s := slices.Sorted(slices.Values(ds))
	return s[min(max(int(math.Ceil(q*float64(len(s))))-1, 0), len(s)-1)]
}

// Meter measures from its making to Stop.
type Meter struct {
	began    time.Time
	self     time.Duration
	children map[int]time.Duration
	engine   []string
}

// StartMeter begins a measurement of this process and of those children whose
// first argument is in engines, such as "engine"; other children are generators.
func StartMeter(engines ...string) *Meter {
	m := &Meter{engine: engines, children: map[int]time.Duration{}, self: selfCPU()}
	for _, pid := range m.pids() {
		m.children[pid] = processCPU(pid)
	}
	m.began = time.Now()
	return m
}

// Stop returns the result of n units of work.
func (m *Meter) Stop(scenario, unit string, n int64) Result {
	wall, cpu := time.Since(m.began), selfCPU()-m.self
	rss := peakRSS("self")
	for _, pid := range m.pids() {
		cpu += processCPU(pid) - m.children[pid]
		rss += peakRSS(strconv.Itoa(pid))
	}
	r := Result{
		Scenario: scenario, Unit: unit, N: n, Seconds: round(wall.Seconds()), CPUSeconds: round(cpu.Seconds()), MaxRSS: rss,
		Go: runtime.Version(), CPU: cpuModel(),
	}
	if wall > 0 {
		r.PerSecond = round(float64(n) / wall.Seconds())
	}
	if cpu > 0 {
		r.PerCPUSecond = round(float64(n) / cpu.Seconds())
	}
	return r
}

// round keeps four digits behind the point.
func round(v float64) float64 { return math.Round(v*1e4) / 1e4 }

func selfCPU() time.Duration {
	var u syscall.Rusage
	if syscall.Getrusage(syscall.RUSAGE_SELF, &u) != nil {
		return 0
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// pids lists the children that belong to the product. Without /proc there are none.
func (m *Meter) pids() []int {
	if len(m.engine) == 0 {
		return nil
	}
	var out []int
	dirs, _ := filepath.Glob("/proc/[0-9]*")
	self := strconv.Itoa(os.Getpid())
	for _, d := range dirs {
		f := statFields(d)
		if len(f) < 2 || f[1] != self {
			continue
		}
		args, err := os.ReadFile(d + "/cmdline")
		if err != nil {
			continue
		}
		if a := strings.Split(string(args), "\x00"); len(a) > 1 && slices.Contains(m.engine, a[1]) {
			if pid, err := strconv.Atoi(filepath.Base(d)); err == nil {
				out = append(out, pid)
			}
		}
	}
	return out
}

// statFields returns the fields of /proc/PID/stat behind the command's name,
// which may hold anything: the first is the state (proc_pid_stat(5), field 3).
func statFields(dir string) []string {
	b, err := os.ReadFile(dir + "/stat")
	if err != nil {
		return nil
	}
	s := string(b)
	return strings.Fields(s[strings.LastIndexByte(s, ')')+1:])
}

// processCPU returns user and system time of a process, in steps of 10 ms: the
// clock tick that Linux shows to programs.
func processCPU(pid int) time.Duration { return statCPU(pid, 11) }

// childrenCPU is likewise of the children of a process that have ended.
func childrenCPU(pid int) time.Duration { return statCPU(pid, 13) }

func statCPU(pid, field int) time.Duration {
	f := statFields("/proc/" + strconv.Itoa(pid))
	if len(f) < field+2 {
		return 0
	}
	user, _ := strconv.ParseInt(f[field], 10, 64)
	system, _ := strconv.ParseInt(f[field+1], 10, 64)
	return time.Duration(user+system) * 10 * time.Millisecond
}

// peakRSS returns the peak of a process's resident memory in bytes. The rusage of
// a process is of no use for that: it begins with the peak of what started it.
func peakRSS(pid string) int64 {
	b, err := os.ReadFile("/proc/" + pid + "/status")
	if err != nil {
		return 0
	}
	for line := range strings.Lines(string(b)) {
		if v, ok := strings.CutPrefix(line, "VmHWM:"); ok {
			kib, _ := strconv.ParseInt(strings.TrimSuffix(strings.TrimSpace(v), " kB"), 10, 64)
			return kib << 10
		}
	}
	return 0
}

func cpuModel() string {
	b, err := os.ReadFile("/proc/cpuinfo")
	if err == nil {
		for line := range strings.Lines(string(b)) {
			if k, v, ok := strings.Cut(line, ":"); ok && strings.TrimSpace(k) == "model name" {
				return strings.TrimSpace(v) + ", " + strconv.Itoa(runtime.GOMAXPROCS(0)) + " used"
			}
		}
	}
	return runtime.GOARCH + ", " + strconv.Itoa(runtime.GOMAXPROCS(0)) + " used"
}
