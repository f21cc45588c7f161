//go:build cgo

package nvml

import (
	"cmp"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"

	lib "github.com/NVIDIA/go-nvml/pkg/nvml"

	"auspex/agent/jobs"
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
		p = w.owners.find(f.Pid)
	}
	p.memory, p.instance = unknown, -1
	if len(w.instances) > 0 && f.GpuInstanceId != noInstance {
		p.instance = int(f.GpuInstanceId)
	}
	if p.pod != "" && !strings.Contains(p.pod, "/") {
		p.pod = cmp.Or(w.podOf(p.instance), p.pod)
	}
	if f.UsedGpuMemory != unknown {
		p.memory = f.UsedGpuMemory / mebi
	}
	w.processes = append(w.processes, p)
}

// podOf is the pod that alone has the GPU, or the one MIG device of an instance of it; "" is not known.
func (w *worker) podOf(number int) string {
	id := w.uuid
	if i := slices.IndexFunc(w.instances, func(in instance) bool { return in.id == number }); i >= 0 {
		if len(w.instances[i].devices) != 1 {
			return ""
		}
		id = w.instances[i].devices[0]
	}
	if w.owners.pod == nil {
		return ""
	}
	return w.owners.pod(id)
}

// owners finds whose a process is.
type owners struct {
	proc string
	pod  func(uuid string) string // see [Needs]
}

// find looks below /proc, which tells nothing of processes that may not be seen.
func (o *owners) find(pid uint32) process {
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
	return p
}
