//go:build cgo

package nvml

import (
	"fmt"
	"slices"
	"strings"
	"time"

	lib "github.com/NVIDIA/go-nvml/pkg/nvml"

	"auspex/internal/target"
)

// instance is a GPU instance of a GPU that MIG divides. It has a MIG device for each of its
// compute instances, which share its memory. Utilisation NVML does not tell of it.
type instance struct {
	id                   int
	profile              string // as 1g.10gb
	devices              []string
	memory               bool
	free, used, reserved uint64 // MiB
}

// key is the entry of an instance in the tree, beneath its GPU.
func (i *instance) key() string {
	return fmt.Sprintf("mig[id=%d][profile=%s]", i.id, target.Key(i.profile))
}

var (
	callInstances = "nvmlDeviceGetMaxMigDeviceCount"
	callInstance  = "nvmlDeviceGetMigDeviceHandleByIndex"
	callID        = "nvmlDeviceGetGpuInstanceId"
	callName      = "nvmlDeviceGetName"
	callMemory    = "nvmlDeviceGetMemoryInfo_v2"
)

// divide finds the instances of a GPU that is divided. Handles go with the instances, which
// come and go: they are asked for anew each time.
func (w *worker) divide() {
	w.instances = w.instances[:0]
	if w.value("state/mig-enabled") != 1 {
		return
	}
	for _, call := range []string{callInstances, callInstance, callID, callMemory} {
		if !w.driver.has(call) {
			return
		}
	}
	w.begin(&callInstances)
	most, ret := w.device.GetMaxMigDeviceCount()
	w.end()
	if ret != lib.SUCCESS {
		w.failed(callInstances, ret)
		return
	}
	for i := range most {
		w.begin(&callInstance)
		d, ret := w.device.GetMigDeviceHandleByIndex(i)
		w.end()
		if ret == lib.SUCCESS {
			w.part(d)
		} else if w.failed(callInstance, ret) {
			return
		}
	}
}

// part reads a MIG device.
func (w *worker) part(d lib.Device) {
	w.begin(&callUUID)
	uuid, ret := d.GetUUID()
	w.end()
	w.begin(&callID)
	id, ret2 := d.GetGpuInstanceId()
	w.end()
	w.begin(&callName)
	name, ret3 := d.GetName()
	w.end()
	for _, r := range []lib.Return{ret, ret2, ret3} {
		if r != lib.SUCCESS { // it may have gone meanwhile
			w.failed(callInstance, r)
			return
		}
	}
	for i := range w.instances {
		if w.instances[i].id == id {
			w.instances[i].devices = append(w.instances[i].devices, uuid)
			return
		}
	}
	in := instance{id: id, profile: profile(name), devices: []string{uuid}}
	w.begin(&callMemory)
	m, ret := d.GetMemoryInfo_v2()
	w.end()
	if in.memory = ret == lib.SUCCESS; in.memory {
		in.free, in.used, in.reserved = m.Free/mebi, m.Used/mebi, m.Reserved/mebi
	} else if w.failed(callMemory, ret) {
		return
	}
	w.instances = append(w.instances, in)
}

// profile reads the profile of a GPU instance from the name of a MIG device, as "NVIDIA H100
// 80GB HBM3 MIG 1c.3g.40gb", which begins with the compute instance's where that is a part.
func profile(name string) string {
	_, p, ok := strings.Cut(name, " MIG ")
	if !ok {
		return "unknown"
	}
	if slice, rest, ok := strings.Cut(p, "."); ok && strings.HasSuffix(slice, "c") {
		p = rest
	}
	return p
}

// split tells the instances, and drops those that are no more.
func (p *place) split(at time.Time, now []instance, open []process) {
	for key := range p.parts {
		if !slices.ContainsFunc(now, func(i instance) bool { return i.key() == key }) {
			p.tree.Drop(p.path + "/" + key)
			delete(p.parts, key)
		}
	}
	for i := range now {
		in := &now[i]
		leaf := func(name string) target.Ref { return p.tree.Leaf(p.path + "/" + in.key() + "/state/" + name) }
		id, name, uuid, devices := leaf("id"), leaf("profile"), leaf("uuid"), leaf("devices")
		free, used, reserved, count := leaf("memory-free"), leaf("memory-used"), leaf("memory-reserved"), leaf("processes")
		p.parts[in.key()] = true
		n := 0
		for _, x := range open {
			if x.instance == in.id {
				n++
			}
		}
		t := p.tree.Write(at)
		t.Uint(id, uint64(max(0, in.id)))
		t.Text(name, in.profile)
		t.Text(uuid, strings.Join(in.devices, " "))
		t.Uint(devices, uint64(len(in.devices)))
		t.Uint(count, uint64(n))
		for ref, v := range map[target.Ref]uint64{free: in.free, used: in.used, reserved: in.reserved} {
			if in.memory {
				t.Uint(ref, v)
			} else {
				t.None(ref)
			}
		}
		t.Close()
	}
}
