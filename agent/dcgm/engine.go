//go:build cgo && dcgm

package dcgm

/*
#cgo LDFLAGS: -ldl
#include <dlfcn.h>
#include <stdint.h>
#include <stdlib.h>

// The functions that go-dcgm does not have, or not so that they can be used, are found at run time, and called with the
// structures of layout.go.
static int call_init(void *f) { return ((int (*)(void))f)(); }
static int call_connect(void *f, const char *address, void *params, uintptr_t *handle) {
	return ((int (*)(const char *, void *, uintptr_t *))f)(address, params, handle);
}
static int call_group(void *f, uintptr_t handle, int type, const char *name, uintptr_t *group) {
	return ((int (*)(uintptr_t, int, const char *, uintptr_t *))f)(handle, type, name, group);
}
static int call_add(void *f, uintptr_t handle, uintptr_t group, unsigned int gpu) {
	return ((int (*)(uintptr_t, uintptr_t, unsigned int))f)(handle, group, gpu);
}
static int call_diagnose(void *f, uintptr_t handle, uintptr_t group, int level, void *out) {
	return ((int (*)(uintptr_t, uintptr_t, int, void *))f)(handle, group, level, out);
}
static int call_stop(void *f, uintptr_t handle) { return ((int (*)(uintptr_t))f)(handle); }
static const char *call_text(void *f, int code) { return ((const char *(*)(int))f)(code); }
*/
import "C"

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math"
	"os"
	"path/filepath"
	"runtime"
	"runtime/debug"
	"slices"
	"strings"
	"sync"
	"time"
	"unsafe"

	"github.com/NVIDIA/go-dcgm/pkg/dcgm"
)

// built says why this build cannot call the library; empty is that it can.
const built = ""

// child is the process that calls the library. It lives for one connection, and ends itself by leaving [Main]; what go-dcgm
// keeps of its connection and of its callbacks ends with it, and is never shut down: that would race with the callbacks.
type child struct {
	order order
	calls map[string]unsafe.Pointer

	mu  sync.Mutex
	out *json.Encoder
}

// Main is the process that calls the library: it is told what to do on its input, and says what it reads on its output.
// Whoever calls it ends the process with what it returns.
func Main(in io.Reader, out io.Writer) int {
	debug.SetGCPercent(25)                         // a value of go-dcgm has 4 KiB
	slog.SetDefault(slog.New(slog.DiscardHandler)) // go-dcgm writes to the log of the process
	lines := bufio.NewReader(in)
	c := &child{out: json.NewEncoder(out)}
	line, err := lines.ReadBytes('\n')
	if err == nil {
		err = json.Unmarshal(line, &c.order)
	}
	if err != nil {
		c.say(word{End: "this is the part of the agent that calls DCGM, and nothing for people: " + err.Error()})
		return 2
	}
	stopped := make(chan struct{})
	go func() {
		for {
			line, err := lines.ReadString('\n')
			if strings.TrimSpace(line) == stop || err != nil && c.order.Level > 0 {
				close(stopped)
				return
			}
			if err != nil { // the agent is gone
				os.Exit(1)
			}
		}
	}()
	if err := c.load(); err != nil {
		c.say(word{End: err.Error(), Absent: true})
		return 1
	}
	if c.order.Level > 0 {
		err = c.diagnose(stopped)
	} else {
		err = c.watch()
	}
	if err != nil {
		c.say(word{End: err.Error()})
		return 1
	}
	return 0
}

// say writes a line. Without somebody who reads it the process has no purpose.
func (c *child) say(w word) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if err := c.out.Encode(w); err != nil {
		os.Exit(1)
	}
}

// begin says which call is made next.
func (c *child) begin(call string) { c.say(word{Call: call}) }

// needed are the functions that are called, by go-dcgm or by us. A lazily bound symbol that is missing ends a process.
var needed = []string{
	"errorString", "dcgmInit", "dcgmConnect_v2", "dcgmHostengineVersionInfo", "dcgmGetAllSupportedDevices",
	"dcgmEntitiesGetLatestValues", "dcgmGroupCreate", "dcgmGroupDestroy", "dcgmGroupAddDevice", "dcgmGroupAddEntity",
	"dcgmGroupGetInfo", "dcgmGetEntityGroupEntities", "dcgmFieldGroupCreate",
	"dcgmFieldGroupDestroy", "dcgmWatchFields", "dcgmUpdateAllFields", "dcgmProfGetSupportedMetricGroups", "dcgmHealthSet",
	"dcgmHealthCheck", "dcgmPolicyGet", "dcgmPolicySet", "dcgmPolicyRegister_v2", "dcgmRunDiagnostic", "dcgmStopDiagnostic",
}

// load loads the library. go-dcgm opens it by its name, which is then loaded already, and binds its functions when they
// are called first; it stays loaded whatever go-dcgm closes.
func (c *child) load() error {
	c.begin("dlopen")
	runtime.LockOSThread() // what dlerror says is of its thread
	defer runtime.UnlockOSThread()
	name := C.CString(c.order.Library)
	defer C.free(unsafe.Pointer(name))
	handle := C.dlopen(name, C.RTLD_LAZY|C.RTLD_GLOBAL|C.RTLD_NODELETE)
	if handle == nil {
		if text := C.GoString(C.dlerror()); !strings.Contains(text, "No such file") {
			return errors.New(text)
		}
		return fmt.Errorf("%s is not there: DCGM is not installed", c.order.Library)
	}
	c.calls = map[string]unsafe.Pointer{}
	for _, call := range needed {
		symbol := C.CString(call)
		c.calls[call] = C.dlsym(handle, symbol)
		C.free(unsafe.Pointer(symbol))
		if c.calls[call] == nil {
			return fmt.Errorf("%s has no %s: DCGM 4 is needed", filepath.Base(c.order.Library), call)
		}
	}
	return nil
}

// address is the hostengine's, as DCGM takes it.
func (c *child) address() (address string, isSocket bool) {
	if path := socket(c.order.Address); filepath.IsAbs(path) {
		return path, true
	}
	return c.order.Address, false
}

// text is what DCGM says of one of its codes.
func (c *child) text(code C.int) string {
	if s := C.call_text(c.calls["errorString"], code); s != nil {
		return C.GoString(s)
	}
	return fmt.Sprintf("error %d of DCGM", int(code))
}

// Codes of DCGM that end the connection (dcgm_structs.h, dcgmReturn_t).
const (
	codeUninitialized = -10
	codeConnection    = -21
)

// lost reports whether an error says that the hostengine is gone.
func lost(err error) bool {
	var e *dcgm.Error
	return errors.As(err, &e) && (int(e.Code) == codeConnection || int(e.Code) == codeUninitialized)
}

// plain is an error in one line.
func plain(what string, err error) string {
	return strings.Join(strings.Fields(fmt.Sprintf("%s: %v", what, err)), " ")
}

// anew is how often what was refused is tried again, and the GPUs are looked at anew.
const anew = time.Minute

// watch reads until the connection ends.
func (c *child) watch() error {
	c.begin("dcgmConnect")
	address, isSocket := c.address()
	flag := "0"
	if isSocket {
		flag = "1"
	}
	if _, err := dcgm.Init(dcgm.Standalone, address, flag); err != nil {
		return fmt.Errorf("no hostengine of DCGM answers at %s: %w", c.order.Address, err)
	}
	c.begin("dcgmHostengineVersionInfo")
	if v, err := dcgm.GetHostengineVersionInfo(); err == nil {
		c.say(word{Version: version(v.RawBuildInfoString)})
	}
	gpus, err := c.boards()
	if err != nil {
		return err
	}
	if len(gpus) == 0 {
		return errors.New("the hostengine of DCGM has no GPU")
	}
	w := &watcher{child: c, stale: map[[2]uint]sample{}}
	for _, g := range gpus {
		w.gpus = append(w.gpus, dcgm.GroupEntityPair{EntityGroupId: dcgm.FE_GPU, EntityId: g.ID})
	}
	if err := w.group(); err != nil {
		return err
	}
	var tried time.Time
	for {
		if time.Since(tried) > anew {
			if !tried.IsZero() {
				now, err := c.boards()
				if err != nil {
					return err
				}
				if !slices.Equal(now, gpus) {
					return errors.New("the GPUs that DCGM has are others than before")
				}
			}
			w.set()
			tried = time.Now()
		}
		r, err := w.read()
		if err != nil {
			return err
		}
		c.say(word{Reading: r})
		time.Sleep(c.order.Interval)
	}
}

// version finds the version in what the hostengine says of its build: pairs of key and value.
func version(info string) string {
	for pair := range strings.SplitSeq(info, ";") {
		if k, v, ok := strings.Cut(pair, ":"); ok && k == "version" {
			return v
		}
	}
	return ""
}

// boards says which GPUs there are. go-dcgm's own description of a GPU watches fields of it, and leaves groups behind.
func (c *child) boards() ([]board, error) {
	c.begin("dcgmGetAllSupportedDevices")
	ids, err := dcgm.GetSupportedDevices()
	if err != nil {
		return nil, fmt.Errorf("dcgmGetAllSupportedDevices: %w", err)
	}
	if len(ids) == 0 {
		return nil, nil
	}
	var pairs []dcgm.GroupEntityPair
	out := make([]board, len(ids))
	for i, id := range ids {
		pairs = append(pairs, dcgm.GroupEntityPair{EntityGroupId: dcgm.FE_GPU, EntityId: id})
		out[i].ID = id
	}
	c.begin("dcgmEntitiesGetLatestValues")
	const live = 1 // DCGM_FV_FLAG_LIVE_DATA: nobody watches these
	values, err := dcgm.EntitiesGetLatestValues(pairs, []dcgm.Short{dcgm.DCGM_FI_DEV_GPU_UUID, dcgm.DCGM_FI_DEV_PCI_BUS_ID}, live)
	if err != nil {
		return nil, fmt.Errorf("dcgmEntitiesGetLatestValues: %w", err)
	}
	for _, v := range values {
		i := slices.IndexFunc(out, func(b board) bool { return b.ID == v.EntityID })
		if i < 0 || v.Status != 0 || v.StringValue == nil || strings.HasPrefix(*v.StringValue, "<<<") { // the blanks of strings
			continue
		}
		if v.FieldID == dcgm.DCGM_FI_DEV_GPU_UUID {
			out[i].UUID = *v.StringValue
		} else {
			out[i].PCI = *v.StringValue
		}
	}
	c.say(word{Boards: out})
	return out, nil
}

// watcher is what is watched over one connection.
type watcher struct {
	*child
	gpus   []dcgm.GroupEntityPair
	all    dcgm.GroupHandle // GPUs
	parts  dcgm.GroupHandle // GPUs, and what else has health
	fields []dcgm.Short
	health bool
	policy bool
	stale  map[[2]uint]sample // by GPU and field

	noProfiling, noHealth, noPolicy string
}

// sample is when a value was taken, and how often it was told since.
type sample struct {
	at   int64
	told int
}

// group puts all GPUs into a group. It goes with the connection, as all that is watched does.
func (w *watcher) group() error {
	w.begin("dcgmGroupCreate")
	all, err := dcgm.CreateGroup(fmt.Sprintf("auspex-%d", os.Getpid()))
	if err != nil {
		return err
	}
	w.all = all
	for _, g := range w.gpus {
		w.begin("dcgmGroupAddDevice")
		if err := dcgm.AddToGroup(all, g.EntityId); err != nil {
			return err
		}
	}
	return nil
}

// watched makes the group whose health is watched. The hostengine watches nothing but what is in a group; a kind of parts
// that it does not know, or that the server has none of, is left out.
func (w *watcher) watched() error {
	w.begin("dcgmGroupCreate")
	parts, err := dcgm.CreateGroup(fmt.Sprintf("auspex-health-%d-%d", os.Getpid(), time.Now().UnixNano()))
	if err != nil {
		return err
	}
	w.parts = parts
	all := slices.Clone(w.gpus)
	for _, kind := range []dcgm.Field_Entity_Group{dcgm.FE_SWITCH, dcgm.FE_CPU, dcgm.FE_CONNECTX} {
		w.begin("dcgmGetEntityGroupEntities")
		ids, err := dcgm.GetEntityGroupEntities(kind)
		if err != nil {
			continue
		}
		for _, id := range ids {
			all = append(all, dcgm.GroupEntityPair{EntityGroupId: kind, EntityId: id})
		}
	}
	for _, e := range all {
		w.begin("dcgmGroupAddEntity")
		if err := dcgm.AddEntityToGroup(parts, e.EntityGroupId, e.EntityId); err != nil && e.EntityGroupId == dcgm.FE_GPU {
			return err
		}
	}
	return nil
}

// set sets the watches that are not set yet.
func (w *watcher) set() {
	if w.fields == nil {
		w.noProfiling = w.profile()
	}
	if !w.health {
		err := w.watched()
		if err == nil {
			w.begin("dcgmHealthSet")
			err = dcgm.HealthSet(w.parts, dcgm.DCGM_HEALTH_WATCH_ALL)
		}
		if err != nil {
			_ = dcgm.DestroyGroup(w.parts)
		}
		if w.health, w.noHealth = err == nil, ""; err != nil {
			w.noHealth = plain("health is not watched", err)
		}
	}
	if !w.policy && !w.order.Policy.Disabled {
		err := w.policies()
		if w.policy, w.noPolicy = err == nil, ""; err != nil {
			w.noPolicy = plain("violations of policies are not told", err)
		}
	}
}

// profile watches the profiling fields that some GPU has, and says why none can be.
func (w *watcher) profile() string {
	var have []dcgm.Short
	for _, g := range w.gpus {
		w.begin("dcgmProfGetSupportedMetricGroups")
		groups, err := dcgm.GetSupportedMetricGroups(g.EntityId)
		if err != nil {
			return plain("profiling fields are not read", err)
		}
		for _, group := range groups {
			for _, id := range group.FieldIds {
				if id := dcgm.Short(id); slices.ContainsFunc(fields, func(f field) bool { return f.id == uint16(id) }) && !slices.Contains(have, id) {
					have = append(have, id)
				}
			}
		}
	}
	if len(have) == 0 {
		return "profiling fields are not read: no GPU has any"
	}
	slices.Sort(have)
	w.begin("dcgmFieldGroupCreate")
	group, err := dcgm.FieldGroupCreate(fmt.Sprintf("auspex-%d-%d", os.Getpid(), time.Now().UnixNano()), have)
	if err != nil {
		return plain("profiling fields are not read", err)
	}
	w.begin("dcgmWatchFields")
	if err := dcgm.WatchFieldsWithGroupEx(group, w.all, w.order.Interval.Microseconds(), 0, 1); err != nil {
		_ = dcgm.FieldGroupDestroy(group)
		return plain("profiling fields are not read: somebody else may profile the GPUs", err)
	}
	w.fields = have
	return ""
}

// conditions are those of policies, by what they are between the processes.
var conditions = map[dcgm.PolicyCondition]string{
	dcgm.DbePolicy: onDBE, dcgm.PCIePolicy: onPCIe, dcgm.MaxRtPgPolicy: onRetired, dcgm.ThermalPolicy: onThermal,
	dcgm.PowerPolicy: onPower, dcgm.NvlinkPolicy: onNVLink, dcgm.XidPolicy: onXID,
}

// policies sets what is wanted and not set, and listens. go-dcgm's own listener would set limits of its own (250 W), and
// forgets to listen again where it could not say that it listens no more; so it is asked once in the life of a process.
func (w *watcher) policies() error {
	p := w.order.Policy
	want := []dcgm.PolicyConfig{
		{Condition: dcgm.DbePolicy}, {Condition: dcgm.PCIePolicy}, {Condition: dcgm.NvlinkPolicy}, {Condition: dcgm.XidPolicy},
	}
	if p.RetiredPages > 0 {
		want = append(want, dcgm.PolicyConfig{Condition: dcgm.MaxRtPgPolicy, MaxRetiredPages: &p.RetiredPages})
	}
	if p.Temperature > 0 {
		want = append(want, dcgm.PolicyConfig{Condition: dcgm.ThermalPolicy, MaxTemperature: &p.Temperature})
	}
	if p.Power > 0 {
		want = append(want, dcgm.PolicyConfig{Condition: dcgm.PowerPolicy, MaxPower: &p.Power})
	}
	w.begin("dcgmPolicyGet")
	had, err := dcgm.GetPolicyForGroup(w.all)
	var missing error
	if err != nil {
		had, missing = &dcgm.PolicyStatus{}, err // none is set yet, or DCGM says below why none can be
	}
	config, changed := merge(had, want)
	if changed {
		w.begin("dcgmPolicySet")
		if err := dcgm.SetPolicyForGroup(w.all, config...); err != nil {
			return errors.Join(err, missing)
		}
	}
	var listen []dcgm.PolicyCondition
	for _, c := range config {
		listen = append(listen, c.Condition)
	}
	w.begin("dcgmPolicyRegister")
	told, err := dcgm.WatchPolicyViolationsForGroup(context.Background(), w.all, listen...)
	if err != nil {
		return err
	}
	go func() {
		for v := range told {
			w.say(word{Violation: of(v)})
		}
	}()
	return nil
}

// merge adds what is wanted to what is set, which stays as it is with its action and its validation.
func merge(had *dcgm.PolicyStatus, want []dcgm.PolicyConfig) (out []dcgm.PolicyConfig, changed bool) {
	limit := func(v any) *uint32 {
		if n, ok := v.(uint32); ok {
			return &n
		}
		return nil
	}
	for condition, v := range had.Conditions {
		c := dcgm.PolicyConfig{Condition: condition}
		switch condition {
		case dcgm.MaxRtPgPolicy:
			c.MaxRetiredPages = limit(v)
		case dcgm.ThermalPolicy:
			c.MaxTemperature = limit(v)
		case dcgm.PowerPolicy:
			c.MaxPower = limit(v)
		}
		out = append(out, c)
	}
	for _, c := range want {
		if _, set := had.Conditions[c.Condition]; !set {
			out, changed = append(out, c), true
		}
	}
	if len(out) > 0 {
		out[0].Action, out[0].Validation = &had.Action, &had.Validation
	}
	return out, changed
}

// of makes a violation of go-dcgm's.
func of(v dcgm.PolicyViolation) *violation {
	out := &violation{GPU: v.GPU, Condition: conditions[v.Condition], Time: v.Timestamp}
	switch d := v.Data.(type) {
	case dcgm.DbePolicyCondition:
		out.Location, out.Value = d.Location, d.NumErrors
	case dcgm.PciPolicyCondition:
		out.Value = d.ReplayCounter
	case dcgm.RetiredPagesPolicyCondition:
		out.Value, out.Other = d.SbePages+d.DbePages, d.DbePages
	case dcgm.ThermalPolicyCondition:
		out.Value = d.ThermalViolation
	case dcgm.PowerPolicyCondition:
		out.Value = d.PowerViolation
	case dcgm.NvlinkPolicyCondition:
		out.Value, out.Other = d.Counter, uint(d.FieldId)
	case dcgm.XidPolicyCondition:
		out.Value = d.ErrNum
	}
	return out
}

// read reads everything once. A hostengine that is gone is an error.
func (w *watcher) read() (*reading, error) {
	r := &reading{NoProfiling: w.noProfiling, NoHealth: w.noHealth, NoPolicy: w.noPolicy, Dropped: dcgm.PolicyViolationDropCount()}
	if w.fields != nil {
		w.begin("dcgmEntitiesGetLatestValues")
		values, err := dcgm.EntitiesGetLatestValues(w.gpus, w.fields, 0)
		switch {
		case lost(err):
			return nil, fmt.Errorf("dcgmEntitiesGetLatestValues: %w", err)
		case err != nil:
			r.Failures, r.NoProfiling = r.Failures+1, plain("profiling fields are not read", err)
		}
		for i := range values {
			if v, ok := w.number(&values[i]); ok {
				r.Values = append(r.Values, value{GPU: values[i].EntityID, Field: uint16(values[i].FieldID), Value: v})
			}
		}
	}
	if w.health {
		w.begin("dcgmHealthCheck")
		health, err := dcgm.HealthCheck(w.parts)
		switch {
		case lost(err):
			return nil, fmt.Errorf("dcgmHealthCheck: %w", err)
		case err != nil:
			r.Failures, r.NoHealth = r.Failures+1, plain("health is not read", err)
		default:
			r.Checked = true
		}
		for _, i := range health.Incidents {
			r.Incidents = append(r.Incidents, incident{
				Group: uint(i.EntityInfo.EntityGroupId), Entity: i.EntityInfo.EntityId, System: uint(i.System),
				Failed: i.Health >= dcgm.DCGM_HEALTH_RESULT_FAIL, Code: uint(i.Error.Code), Message: i.Error.Message,
			})
		}
	}
	if w.fields == nil && !w.health { // whether the hostengine is there has still to be asked
		if _, err := w.boards(); err != nil {
			return nil, err
		}
	}
	return r, nil
}

// worn is how often a value is taken that the hostengine tells again: its watch stands still then.
const worn = 3

// number is a field's number, where it has one: a blank is a value that there is not.
func (w *watcher) number(f *dcgm.FieldValue_v2) (v float64, ok bool) {
	if f.Status != 0 {
		return 0, false
	}
	switch f.FieldType {
	case dcgm.DCGM_FT_DOUBLE:
		if v = f.Float64(); !(v >= 0 && v < dcgm.DCGM_FT_FP64_BLANK) {
			return 0, false
		}
	case dcgm.DCGM_FT_INT64:
		n := f.Int64()
		if n < 0 || dcgm.IsInt64Blank(n) {
			return 0, false
		}
		v = float64(n)
	default:
		return 0, false
	}
	key := [2]uint{f.EntityID, uint(f.FieldID)}
	s := w.stale[key]
	if f.TS != s.at {
		s = sample{at: f.TS}
	}
	s.told++
	w.stale[key] = s
	return v, s.told <= worn && !math.IsInf(v, 0)
}

// diagnose runs a diagnostic, on a connection of its own calls: go-dcgm cannot stop one, names tests after numbers that DCGM
// gives them no more, and does not tell what is of a GPU from what is of the server.
func (c *child) diagnose(stopped <-chan struct{}) error {
	level := map[int]C.int{1: levelShort, 2: levelMedium, 3: levelLong}[c.order.Level]
	handle, err := c.connect()
	if err != nil {
		return err
	}
	group, err := c.diagnosed(handle)
	if err != nil {
		return err
	}
	response := (*diagResponse)(C.calloc(1, C.size_t(unsafe.Sizeof(diagResponse{})))) // it ends with the process
	response.Version = diagVersion
	ended := make(chan struct{})
	go func() {
		select {
		case <-ended:
		case <-stopped:
			if other, err := c.connect(); err == nil {
				C.call_stop(c.calls["dcgmStopDiagnostic"], other)
			}
		}
	}()
	c.begin("dcgmRunDiagnostic")
	code := C.call_diagnose(c.calls["dcgmRunDiagnostic"], handle, group, level, unsafe.Pointer(response))
	close(ended)
	if code != 0 {
		return errors.New("dcgmRunDiagnostic: " + c.text(code))
	}
	tests := response.tests()
	if len(tests) == 0 {
		return errors.New("dcgmRunDiagnostic: nothing was tested")
	}
	c.say(word{Tests: tests})
	return nil
}

// connect makes a connection that go-dcgm does not know of.
func (c *child) connect() (handle C.uintptr_t, err error) {
	address, isSocket := c.address()
	name := C.CString(address)
	defer C.free(unsafe.Pointer(name))
	params := connectParams{Version: connectVersion, TimeoutMs: uint32(c.order.Deadline.Milliseconds())}
	if isSocket {
		params.AddressIsUnixSocket = 1
	}
	c.begin("dcgmConnect")
	if code := C.call_init(c.calls["dcgmInit"]); code != 0 {
		return 0, errors.New("dcgmInit: " + c.text(code))
	}
	if code := C.call_connect(c.calls["dcgmConnect_v2"], name, unsafe.Pointer(&params), &handle); code != 0 {
		return 0, fmt.Errorf("no hostengine of DCGM answers at %s: %s", c.order.Address, c.text(code))
	}
	return handle, nil
}

// diagnosed makes a group of the GPUs that are diagnosed. Which they are go-dcgm finds.
func (c *child) diagnosed(handle C.uintptr_t) (group C.uintptr_t, err error) {
	address, isSocket := c.address()
	flag := "0"
	if isSocket {
		flag = "1"
	}
	if _, err := dcgm.Init(dcgm.Standalone, address, flag); err != nil {
		return 0, err
	}
	gpus, err := c.boards()
	if err != nil {
		return 0, err
	}
	name := C.CString(fmt.Sprintf("auspex-%d", os.Getpid()))
	defer C.free(unsafe.Pointer(name))
	c.begin("dcgmGroupCreate")
	if code := C.call_group(c.calls["dcgmGroupCreate"], handle, groupEmpty, name, &group); code != 0 {
		return 0, errors.New("dcgmGroupCreate: " + c.text(code))
	}
	for _, uuid := range c.order.UUIDs {
		i := slices.IndexFunc(gpus, func(b board) bool { return b.UUID == uuid })
		if i < 0 {
			return 0, fmt.Errorf("DCGM has no GPU %s", uuid)
		}
		if code := C.call_add(c.calls["dcgmGroupAddDevice"], handle, group, C.uint(gpus[i].ID)); code != 0 {
			return 0, errors.New("dcgmGroupAddDevice: " + c.text(code))
		}
	}
	return group, nil
}

// tests are what a diagnostic has found. Numbers beyond what a list holds are no result.
func (r *diagResponse) tests() (out []test) {
	results := map[uint32]string{resultPass: testPassed, resultWarn: testWarned, resultFail: testFailed}
	add := func(i int, e entity, result uint32) {
		t := test{Name: chars(r.Tests[i].Name[:]), Group: uint(e.EntityGroupId), Entity: uint(e.EntityId), Result: results[result]}
		if t.Result == "" {
			t.Result = testSkipped
		}
		for j := range min(int(r.NumErrors), len(r.Errors)) {
			if x := &r.Errors[j]; t.Message == "" && int(x.TestId) == i && x.Entity == e {
				t.Message = chars(x.Msg[:])
			}
		}
		for j := range min(int(r.NumInfo), len(r.Info)) {
			if x := &r.Info[j]; t.Message == "" && int(x.TestId) == i && x.Entity == e {
				t.Message = chars(x.Msg[:])
			}
		}
		out = append(out, t)
	}
	for i := range min(int(r.NumTests), len(r.Tests)) {
		some := false
		for j := range min(int(r.NumResults), len(r.Results)) {
			if x := &r.Results[j]; int(x.TestId) == i {
				some = true
				add(i, x.Entity, x.Result)
			}
		}
		if !some {
			add(i, entity{}, r.Tests[i].Result)
		}
	}
	return out
}

// chars reads a C string of fixed size.
func chars[T int8 | uint8](b []T) string {
	var out []byte
	for _, c := range b {
		if c == 0 {
			break
		}
		out = append(out, byte(c))
	}
	return strings.ToValidUTF8(string(out), "\uFFFD")
}
