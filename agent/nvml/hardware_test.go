//go:build cgo

package nvml

import (
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	lib "github.com/NVIDIA/go-nvml/pkg/nvml"
	"github.com/google/go-cmp/cmp"

	"auspex/internal/target"
	"auspex/internal/waittest"
)

// recorded names a folder; what the GPUs of this machine answer is written there.
const recorded = "AUSPEX_HARDWARE"

// TestTheLibraryOfThisMachine writes down what the real library answers, in the words of its stub, what the
// reader makes of it, and what each call takes. Who a GPU is is left out.
func TestTheLibraryOfThisMachine(t *testing.T) {
	dir := os.Getenv(recorded)
	if dir == "" {
		t.Skip(recorded + " names no folder: this is for a machine with an NVIDIA GPU (make hardware)")
	}
	d := &driver{lib: lib.New(lib.WithLibraryPath(Default().Library))}
	if ret := d.lib.Init(); ret != lib.SUCCESS {
		t.Fatal(text(ret))
	}
	rec := &recording{}
	rec.machine(d.lib)
	costs := cost(t, d.lib)
	_ = d.lib.Shutdown()

	s := &server{t: t, cfg: Default(), tree: target.NewTree(), state: filepath.Join(t.TempDir(), "gpus.json")}
	s.cfg.Interval = time.Second
	s.kernel.Store(true)
	stop := s.run()
	waittest.For(t, "no GPU is read", func() bool { return s.leaves()["/gpus/gpu[gpu0]/state/temperature"] != nil })
	leaves := s.leaves()
	stop()
	if got := s.told(); len(got) > 0 {
		t.Errorf("a sound machine is told to have %q", got)
	}
	maps.DeleteFunc(leaves, func(path string, _ any) bool { return private(path) })
	b, err := json.MarshalIndent(leaves, "", " ")
	if err != nil {
		t.Fatal(err)
	}
	for name, text := range map[string]string{"machine": strings.Join(rec.lines, "\n") + "\n", "leaves.json": string(b) + "\n", "costs": costs} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
}

// What real GPUs answered makes the same of the stub as it did of them. See testdata/README.md.
func TestWhatRealGPUsAnswered(t *testing.T) {
	folders, err := filepath.Glob("testdata/*/machine")
	if err != nil || len(folders) == 0 {
		t.Fatal(folders, err)
	}
	for _, path := range folders {
		t.Run(filepath.Base(filepath.Dir(path)), func(t *testing.T) {
			said, err1 := os.ReadFile(path)
			told, err2 := os.ReadFile(filepath.Join(filepath.Dir(path), "leaves.json"))
			var want map[string]any
			if err := errors.Join(err1, err2, json.Unmarshal(told, &want)); err != nil {
				t.Fatal(err)
			}
			s := newServer(t, 1)
			for line := range strings.Lines(string(said)) {
				s.machine.Say("%s", strings.TrimSpace(line))
			}
			stop := s.run()
			waittest.For(t, "no GPU is read", func() bool { return s.leaves()["/gpus/gpu[gpu0]/state/temperature"] != nil })
			stop()
			if got := s.told(); len(got) > 0 {
				t.Errorf("a sound machine is told to have %q", got)
			}
			got := s.leaves()
			maps.DeleteFunc(got, func(path string, _ any) bool {
				_, told := want[path]
				return private(path) || !told && younger[path]
			})
			for path := range moving { // between the two
				if got[path] == nil || want[path] == nil {
					t.Errorf("%s is %v, and was %v", path, got[path], want[path])
				}
				delete(got, path)
				delete(want, path)
			}
			for path, v := range got {
				if n, ok := v.(uint64); ok {
					got[path] = float64(n)
				}
			}
			if d := cmp.Diff(want, got); d != "" {
				t.Error(d)
			}
		})
	}
}

var moving = map[string]bool{"/gpus/gpu[gpu0]/state/power": true, "/gpus/gpu[gpu0]/state/energy": true, "/gpus/gpu[gpu0]/state/memory-temperature": true, "/gpus/gpu[gpu0]/state/temperature": true, "/gpus/gpu[gpu0]/state/sm-clock": true}

// younger are leaves that the agent did not read yet when some of the GPUs were asked.
var younger = map[string]bool{"/gpus/gpu[gpu0]/state/minor-number": true}

// private says whether a leaf tells who a GPU or a process is.
func private(path string) bool {
	return strings.HasSuffix(path, "/uuid") || strings.HasSuffix(path, "/serial") || strings.Contains(path, "/process[")
}

// recording is what GPUs have answered, as lines of the stub's description.
type recording struct {
	gpu   int
	lines []string
}

func (r *recording) say(format string, args ...any) {
	r.lines = append(r.lines, fmt.Sprintf(format, args...))
}

// value says what a call has answered.
func (r *recording) value(ret lib.Return, key string, v any) {
	if ret != lib.SUCCESS {
		r.say("gpu %d fails %s %d", r.gpu, key, ret)
		return
	}
	r.say("gpu %d set %s %v", r.gpu, key, v)
}

func (r *recording) machine(l lib.Interface) {
	version, _ := l.SystemGetDriverVersion()
	library, _ := l.SystemGetNVMLVersion()
	n, _ := l.DeviceGetCount()
	r.say("gpus %d", n)
	r.say("driver %s", version)
	r.say("library %s", library)
	for r.gpu = range n {
		if d, ret := l.DeviceGetHandleByIndex(r.gpu); ret == lib.SUCCESS {
			r.words(d)
			r.numbers(d)
			r.memory(d)
			r.links(d)
		}
	}
}

func (r *recording) words(d lib.Device) {
	for key, get := range map[string]func() (string, lib.Return){"product": d.GetName, "vbios": d.GetVbiosVersion, "inforom": d.GetInforomImageVersion} {
		v, ret := get()
		r.value(ret, key, v)
	}
	info, ret := d.GetPciInfo()
	r.value(ret, "pci", chars(info.BusId[:]))
}

// say and its like record calls by the types of their answers.
func say[T number](r *recording, key string, get func() (T, lib.Return)) {
	v, ret := get()
	r.value(ret, key, uint64(v))
}

func chosen[W, T number](r *recording, key string, get func(W) (T, lib.Return), which ...W) {
	for _, w := range which {
		v, ret := get(w)
		r.value(ret, fmt.Sprintf("%s-%d", key, uint64(w)), uint64(v))
	}
}

func pair[T number](r *recording, key1, key2 string, get func() (T, T, lib.Return)) {
	a, b, ret := get()
	if r.value(ret, key1, uint64(a)); ret == lib.SUCCESS {
		r.value(ret, key2, uint64(b))
	}
}

func (r *recording) numbers(d lib.Device) {
	chosen(r, "temperature", d.GetTemperature, lib.TEMPERATURE_GPU)
	chosen(r, "threshold", d.GetTemperatureThreshold, lib.TEMPERATURE_THRESHOLD_SHUTDOWN, lib.TEMPERATURE_THRESHOLD_SLOWDOWN, lib.TEMPERATURE_THRESHOLD_MEM_MAX, lib.TEMPERATURE_THRESHOLD_GPU_MAX)
	say(r, "power", d.GetPowerUsage)
	say(r, "power-limit", d.GetEnforcedPowerLimit)
	say(r, "power-limit-set", d.GetPowerManagementLimit)
	say(r, "power-limit-default", d.GetPowerManagementDefaultLimit)
	pair(r, "power-limit-min", "power-limit-max", d.GetPowerManagementLimitConstraints)
	chosen(r, "clock", d.GetClockInfo, lib.CLOCK_SM, lib.CLOCK_MEM)
	chosen(r, "clock-max", d.GetMaxClockInfo, lib.CLOCK_SM, lib.CLOCK_MEM)
	chosen(r, "application-clock", d.GetApplicationsClock, lib.CLOCK_SM, lib.CLOCK_MEM)
	say(r, "reasons", d.GetCurrentClocksEventReasons)
	say(r, "performance-state", d.GetPerformanceState)
	pair(r, "utilization", "memory-utilization", func() (uint32, uint32, lib.Return) {
		u, ret := d.GetUtilizationRates()
		return u.Gpu, u.Memory, ret
	})
	pair(r, "encoder", "period", d.GetEncoderUtilization)
	pair(r, "decoder", "period", d.GetDecoderUtilization)
	say(r, "energy", d.GetTotalEnergyConsumption)
	say(r, "pcie-replays", d.GetPcieReplayCounter)
	say(r, "pcie-generation", d.GetCurrPcieLinkGeneration)
	say(r, "pcie-generation-max", d.GetMaxPcieLinkGeneration)
	say(r, "pcie-width", d.GetCurrPcieLinkWidth)
	say(r, "pcie-width-max", d.GetMaxPcieLinkWidth)
	say(r, "architecture", d.GetArchitecture)
	say(r, "persistence", d.GetPersistenceMode)
	pair(r, "ecc", "ecc-next", d.GetEccMode)
	pair(r, "mig", "mig-next", d.GetMigMode)
	for _, policy := range []lib.PerfPolicyType{lib.PERF_POLICY_POWER, lib.PERF_POLICY_THERMAL} {
		v, ret := d.GetViolationStatus(policy)
		r.value(ret, fmt.Sprintf("violation-%d", policy), v.ViolationTime)
	}
	info, ret := d.GetGpuFabricInfoV().V3()
	if r.value(ret, "fabric-state", info.State); ret == lib.SUCCESS {
		r.value(ret, "fabric-status", info.Status)
		r.value(ret, "fabric-health", info.HealthMask)
		r.value(ret, "fabric-summary", info.HealthSummary)
		r.value(ret, "fabric-clique", info.CliqueId)
	}
	for _, id := range []uint32{
		lib.FI_DEV_MEMORY_TEMP, lib.FI_DEV_NVLINK_CRC_FLIT_ERROR_COUNT_TOTAL, lib.FI_DEV_NVLINK_REPLAY_ERROR_COUNT_TOTAL, lib.FI_DEV_NVLINK_RECOVERY_ERROR_COUNT_TOTAL,
		lib.FI_DEV_GET_GPU_RECOVERY_ACTION,
	} {
		r.field(d, id, 0, "")
	}
	r.field(d, lib.FI_DEV_NVLINK_THROUGHPUT_DATA_TX, allLink, "")
	r.field(d, lib.FI_DEV_NVLINK_THROUGHPUT_DATA_RX, allLink, "")
}

func (r *recording) field(d lib.Device, id, scope uint32, link string) {
	key := fmt.Sprintf("field-%d%s", id, link)
	v := []lib.FieldValue{{FieldId: id, ScopeId: scope}}
	if ret := d.GetFieldValues(v); ret != lib.SUCCESS {
		r.value(ret, key, 0)
		return
	}
	if r.value(lib.Return(v[0].NvmlReturn), key, binary.NativeEndian.Uint64(v[0].Value[:])); v[0].NvmlReturn == 0 {
		r.value(lib.SUCCESS, fmt.Sprintf("type-%d", id), v[0].ValueType)
	}
}

func (r *recording) memory(d lib.Device) {
	m, ret := d.GetMemoryInfo_v2()
	r.value(ret, "memory-total", m.Total)
	r.value(ret, "memory-used", m.Used)
	r.value(ret, "memory-reserved", m.Reserved)
	a, b, pending, failed, ret := d.GetRemappedRows()
	if r.value(ret, "remapped", a); ret == lib.SUCCESS {
		r.value(ret, "remapped-uncorrected", b)
		r.value(ret, "remap-pending", truth(pending))
		r.value(ret, "remap-failed", truth(failed))
	}
	h, ret := d.GetRowRemapperHistogram()
	for i, n := range []uint32{h.Max, h.High, h.Partial, h.Low, h.None} {
		r.value(ret, fmt.Sprintf("banks-%d", i), n)
	}
	for _, cause := range []lib.PageRetirementCause{lib.PAGE_RETIREMENT_CAUSE_MULTIPLE_SINGLE_BIT_ECC_ERRORS, lib.PAGE_RETIREMENT_CAUSE_DOUBLE_BIT_ECC_ERROR} {
		pages, ret := d.GetRetiredPages(cause)
		r.value(ret, fmt.Sprintf("retired-%d", cause), len(pages))
	}
	sram, ret := d.GetSramEccErrorStatus()
	r.value(ret, "sram-exceeded", sram.BThresholdExceeded)
	repair, ret := d.GetRepairStatus()
	if r.value(ret, "channel-repair", repair.BChannelRepairPending); ret == lib.SUCCESS {
		r.value(ret, "tpc-repair", repair.BTpcRepairPending)
	}
	say(r, "retired-pending", d.GetRetiredPagesPendingStatus)
	for _, typ := range []lib.MemoryErrorType{lib.MEMORY_ERROR_TYPE_CORRECTED, lib.MEMORY_ERROR_TYPE_UNCORRECTED} {
		for _, counter := range []lib.EccCounterType{lib.VOLATILE_ECC, lib.AGGREGATE_ECC} {
			n, ret := d.GetTotalEccErrors(typ, counter)
			r.value(ret, fmt.Sprintf("ecc-%d-%d", typ, counter), n)
			for place := range lib.MEMORY_LOCATION_COUNT {
				n, ret := d.GetMemoryErrorCounter(typ, counter, lib.MemoryLocation(place))
				r.value(ret, fmt.Sprintf("ecc-%d-%d-%d", typ, counter, place), n)
			}
		}
	}
}

func (r *recording) links(d lib.Device) {
	for link := range lib.NVLINK_MAX_LINKS {
		v, ret := d.GetNvLinkState(link)
		r.value(ret, fmt.Sprintf("nvlink-%d", link), v)
		kind, ret := d.GetNvLinkRemoteDeviceType(link)
		r.value(ret, fmt.Sprintf("remote-type-%d", link), kind)
		if _, ret := d.GetNvLinkRemotePciInfo(link); ret != lib.SUCCESS {
			r.value(ret, fmt.Sprintf("remote-%d", link), 0)
		}
		for _, counter := range []lib.NvLinkErrorCounter{lib.NVLINK_ERROR_DL_REPLAY, lib.NVLINK_ERROR_DL_RECOVERY, lib.NVLINK_ERROR_DL_CRC_FLIT, lib.NVLINK_ERROR_DL_CRC_DATA} {
			n, ret := d.GetNvLinkErrorCounter(link, counter)
			r.value(ret, fmt.Sprintf("nvlink-%d-%d", link, counter), n)
		}
		for _, id := range []uint32{
			lib.FI_DEV_NVLINK_COUNT_RCV_ERRORS, lib.FI_DEV_NVLINK_COUNT_LOCAL_LINK_INTEGRITY_ERRORS, lib.FI_DEV_NVLINK_COUNT_XMIT_DISCARDS,
			lib.FI_DEV_NVLINK_COUNT_LINK_RECOVERY_EVENTS, lib.FI_DEV_NVLINK_COUNT_LINK_RECOVERY_FAILED_EVENTS, lib.FI_DEV_NVLINK_COUNT_EFFECTIVE_ERRORS, lib.FI_DEV_NVLINK_COUNT_SYMBOL_ERRORS,
		} {
			r.field(d, id, uint32(link), fmt.Sprintf("-%d", link))
		}
	}
}

// cost measures each reading, in microseconds: the mean, and the slowest.
func cost(t *testing.T, l lib.Interface) string {
	t.Helper()
	d, ret := l.DeviceGetHandleByIndex(0)
	if ret != lib.SUCCESS {
		t.Fatal(text(ret))
	}
	type row struct {
		name       string
		mean, most float64
		ret        lib.Return
	}
	var rows []row
	var scratch [maxLeaves]float64
	const times = 20
	for i := range readings {
		r := &readings[i]
		if strings.HasPrefix(r.leaves[0], "nvlink[link=") && !strings.HasPrefix(r.leaves[0], "nvlink[link=0]") || l.Extensions().LookupSymbol(r.symbol) != nil {
			continue
		}
		one := row{name: r.symbol + " " + r.leaves[0]}
		for range times {
			begun := time.Now()
			one.ret = r.read(d, scratch[:len(r.leaves)])
			took := float64(time.Since(begun).Nanoseconds()) / 1e3
			one.mean, one.most = one.mean+took/times, max(one.most, took)
		}
		rows = append(rows, one)
	}
	slices.SortFunc(rows, func(a, b row) int { return int(b.mean - a.mean) })
	var out strings.Builder
	for _, r := range rows {
		fmt.Fprintf(&out, "%9.1f %9.1f %3d %s\n", r.mean, r.most, r.ret, r.name)
	}
	return out.String()
}
