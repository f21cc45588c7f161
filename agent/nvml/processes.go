//go:build cgo

package nvml

import (
	"context"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"time"

	lib "github.com/NVIDIA/go-nvml/pkg/nvml"

	"auspex/agent/jobs"
	"auspex/internal/run"
)

// process is one that has a GPU open.
type process struct {
	pid    uint32
	memory uint64 // MiB; unknown is not known
	name   string
	user   uint32
	job    int64
	pod    string

	instance int // of the GPU, where MIG divides it; less than 0 is none
}

// unknown is what NVML gives for memory that it does not know (NVML_VALUE_NOT_AVAILABLE).
const unknown = ^uint64(0)

// noInstance is the instance of a process on a whole GPU.
const noInstance = ^uint32(0)

var lists = []struct {
	symbol string
	read   func(lib.Device) ([]lib.ProcessInfo, lib.Return)
}{
	{"nvmlDeviceGetComputeRunningProcesses", lib.Device.GetComputeRunningProcesses},
	{"nvmlDeviceGetGraphicsRunningProcesses", lib.Device.GetGraphicsRunningProcesses},
}

// maxProcesses bounds those of a GPU that are told.
const maxProcesses = 256

// open finds the processes that have the GPU open. Whose one is, is looked up once.
func (w *worker) open() {
	before := w.processes
	w.processes = nil
	for i := range lists {
		l := &lists[i]
		if !w.driver.has(l.symbol) && !w.driver.has(l.symbol+"_v2") && !w.driver.has(l.symbol+"_v3") {
			continue
		}
		w.begin(&l.symbol)
		found, ret := l.read(w.device)
		w.end()
		if ret != lib.SUCCESS {
			if w.failed(l.symbol, ret) {
				return
			}
			continue
		}
		for _, f := range found {
			w.process(f, before)
		}
	}
}

func (w *worker) process(f lib.ProcessInfo, before []process) {
	for i := range w.processes {
		if w.processes[i].pid == f.Pid { // in both lists, or in several instances
			return
		}
	}
	if len(w.processes) >= maxProcesses {
		return
	}
	p := process{pid: f.Pid}
	for _, old := range before {
		if old.pid == f.Pid {
			p = old
		}
	}
	if p.name == "" {
		p = w.owners.find(f.Pid, w.uuid)
	}
	p.memory, p.instance = unknown, -1
	if len(w.instances) > 0 && f.GpuInstanceId != noInstance {
		p.instance = int(f.GpuInstanceId)
	}
	if f.UsedGpuMemory != unknown {
		p.memory = f.UsedGpuMemory / mebi
	}
	w.processes = append(w.processes, p)
}

// owners finds whose a process is.
type owners struct {
	proc    string
	kubelet string
	pods    atomic.Pointer[map[string]string] // the pod that alone has a GPU, by UUID
}

// find looks below /proc, which tells nothing of processes that may not be seen.
func (o *owners) find(pid uint32, uuid string) process {
	dir := filepath.Join(o.proc, strconv.FormatUint(uint64(pid), 10))
	p := process{pid: pid}
	if b, err := os.ReadFile(filepath.Join(dir, "comm")); err == nil {
		p.name = strings.TrimSpace(string(b))
	}
	if info, err := os.Stat(dir); err == nil {
		if s, ok := info.Sys().(*syscall.Stat_t); ok {
			p.user = s.Uid
		}
	}
	owner, err := jobs.Find(o.proc, int(pid))
	if err != nil {
		return p
	}
	p.job, p.pod = owner.Job, owner.Pod
	if pods := o.pods.Load(); pods != nil && p.pod != "" {
		if name := (*pods)[uuid]; name != "" {
			p.pod = name
		}
	}
	return p
}

// follow asks the kubelet each minute which pods have GPUs, where there is one.
func (o *owners) follow(ctx context.Context) {
	for ctx.Err() == nil {
		if _, err := os.Stat(o.kubelet); err == nil {
			o.ask(ctx)
		}
		_ = run.Sleep(ctx, time.Minute)
	}
}

func (o *owners) ask(ctx context.Context) {
	k, err := jobs.NewKubelet(o.kubelet)
	if err != nil {
		return
	}
	defer func() { _ = k.Close() }()
	devices, err := k.Devices(ctx, "nvidia.com/")
	if err != nil {
		return
	}
	pods := map[string]string{}
	for _, d := range devices {
		name := d.Namespace + "/" + d.Pod
		if had, shared := pods[d.ID]; shared && had != name {
			name = ""
		}
		pods[d.ID] = name
	}
	o.pods.Store(&pods)
}
