package agent

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"auspex/schemas"
)

const (
	// deviceKeys are the keys of a device of a pod in their order: container, id, namespace, pod, resource.
	deviceKeys = 5
	// tellPodsAgain is how often what pods hold is told though it is as it was, to whoever has lost it.
	tellPodsAgain = time.Hour
	maxPods       = 1024 // devices of pods that are kept of an agent
)

// pods are the devices that the pods of a server hold.
type pods struct {
	read, synced bool
	devices      map[string]string // GPU by keys, with a NUL between them; "" is not known
	told         string
	at           time.Time // when it was told
	since        time.Time // the time of what was told
}

// begin takes note that all will be told anew.
func (p *pods) begin() { *p = pods{} }

func deviceKey(keys []string) string { return strings.Join(keys, "\x00") }

func (p *pods) put(l *leaf, value string) {
	key := deviceKey(l.keys)
	gpu, known := p.devices[key]
	switch {
	case !known && len(p.devices) >= maxPods:
		return
	case l.what == onGPU:
		gpu = value
	}
	if p.devices == nil {
		p.devices = map[string]string{}
	}
	p.devices[key] = gpu
}

// forget takes note that a device is not held any more, or that it is not known which GPU it is.
func (p *pods) forget(name string, keys []string) {
	switch {
	case len(keys) != deviceKeys:
		if name == "" || name == "/pods" || name == "/pods/device" {
			clear(p.devices)
		}
	case strings.HasSuffix(name, "/state/gpu"):
		p.devices[deviceKey(keys)] = ""
	default:
		delete(p.devices, deviceKey(keys))
	}
}

// said is what the devices are told as: each pod with the numbers of its GPUs on the server.
func (p *pods) said() (text string, pods, gpus, unplaced int) {
	of := map[string]map[uint64]bool{}
	on := map[uint64]bool{}
	for key, gpu := range p.devices {
		k := strings.Split(key, "\x00")
		n, err := strconv.ParseUint(strings.TrimPrefix(gpu, "gpu"), 10, 16)
		if err != nil || strings.ContainsAny(k[2]+k[3], ",=+/") { // no name of Kubernetes
			unplaced++
			continue
		}
		name := k[2] + "/" + k[3]
		if of[name] == nil {
			of[name] = map[uint64]bool{}
		}
		of[name][n], on[n] = true, true
	}
	var b strings.Builder
	for i, name := range slices.Sorted(maps.Keys(of)) {
		if i > 0 {
			b.WriteByte(',')
		}
		b.WriteString(name)
		for j, n := range slices.Sorted(maps.Keys(of[name])) {
			b.WriteByte("=+"[min(j, 1)])
			b.WriteString(strconv.FormatUint(n, 10))
		}
	}
	return b.String(), len(of), len(on), unplaced
}

// tellPods tells which GPUs the pods of the server hold, when that has changed.
func (st *state) tellPods(now time.Time) {
	p := &st.pods
	if !p.read || !p.synced {
		return
	}
	text, n, gpus, unplaced := p.said()
	text += " " + strconv.Itoa(unplaced)
	if text == p.told && time.Since(p.at) < tellPodsAgain {
		return
	}
	if text != p.told {
		p.since = now.UTC()
	}
	p.told, p.at = text, time.Now()
	list, _, _ := strings.Cut(text, " ")
	ev := schemas.Event{
		ID:   schemas.EventID(st.s.device, "pods", text, p.since.Format(time.RFC3339Nano)),
		Time: p.since, Observed: now.UTC(), Source: schemas.SourceAgent, Resource: st.s.device, Type: schemas.EventWorkloadDevices, Severity: schemas.SeverityInfo,
		Message: fmt.Sprintf("%d pods hold %d GPUs", n, gpus),
	}
	ev.SetAttr(schemas.AttrPods, list)
	if unplaced > 0 {
		ev.SetAttr("unplaced", strconv.Itoa(unplaced))
		ev.Message += fmt.Sprintf(", and %d devices of which the agent does not know which GPU they are", unplaced)
	}
	st.batch.Event(ev)
}
