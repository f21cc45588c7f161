package jobs

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"auspex/internal/run"
	"auspex/internal/target"
)

// maxDevices bounds the devices that are told; those beyond are counted. A GPU has at most
// 7 MIG devices.
const maxDevices = 1024

// Config says what is read of the kubelet.
type Config struct {
	Disabled bool          `yaml:"disabled"`
	Socket   string        `yaml:"socket"` // of its pod resources; one that is not there is no kubelet
	Interval time.Duration `yaml:"interval"`
	// Resources are beginnings of the names of device plug-ins' resources, and of drivers whose devices are claimed (DRA).
	Resources []string `yaml:"resources"`
}

// Default returns the defaults.
func Default() Config {
	return Config{Socket: Socket, Interval: 10 * time.Second, Resources: []string{"nvidia.com/", "gpu.nvidia.com", "amd.com/", "gpu.amd.com"}}
}

// Validate names the first value that makes no sense.
func (c *Config) Validate() error {
	switch {
	case c.Disabled:
		return nil
	case c.Socket == "":
		return errors.New("socket must be set")
	case c.Interval < 100*time.Millisecond:
		return errors.New("interval must be at least 100ms")
	case len(c.Resources) == 0 || slices.Contains(c.Resources, ""):
		return errors.New("resources: name what begins the names of GPUs' resources, such as nvidia.com/")
	}
	return nil
}

// Reader tells which GPUs the pods of this machine hold.
type Reader struct {
	cfg   Config
	tree  *target.Tree
	log   *slog.Logger
	gpus  func() map[string]uint32
	alone atomic.Pointer[map[string]string] // the pod that alone has a device, by its id

	told    map[string]bool // entries of the tree
	kinds   map[string]bool
	was     string // what was logged last
	answers bool   // it has answered once
	errRef  target.Ref
	leftRef target.Ref
}

// NewReader returns a reader. It performs no I/O before Run. The function returns the numbers
// of GPUs by whatever they, and parts of them, are called (see [Minor]); nil is none.
func NewReader(cfg Config, t *target.Tree, gpus func() map[string]uint32, log *slog.Logger) *Reader {
	return &Reader{
		cfg: cfg, tree: t, gpus: gpus, log: log, told: map[string]bool{}, kinds: map[string]bool{},
		errRef: t.Leaf("/pods/state/error"), leftRef: t.Leaf("/pods/state/left-out"),
	}
}

// Pod is the pod, as namespace/name, that alone has a device; "" is none, several, or not known.
func (r *Reader) Pod(id string) string {
	if pods := r.alone.Load(); pods != nil {
		return (*pods)[id]
	}
	return ""
}

// Run reads until ctx is done. Where there is no kubelet it says so once, and goes on looking.
func (r *Reader) Run(ctx context.Context) {
	k, err := NewKubelet(r.cfg.Socket)
	if err != nil {
		r.failed(err)
		return
	}
	defer func() { _ = k.Close() }()
	for ctx.Err() == nil {
		_, err := os.Stat(r.cfg.Socket)
		switch {
		case errors.Is(err, fs.ErrNotExist) && !r.answers:
			r.say("no kubelet is here: pods' devices are not read", nil)
		case err != nil:
			r.failed(err)
		default:
			if err := r.read(ctx, k); err != nil && ctx.Err() == nil {
				r.failed(err)
			}
		}
		_ = run.Sleep(ctx, r.cfg.Interval)
	}
}

// say logs what is not what it said last.
func (r *Reader) say(what string, err error) {
	text := what
	if err != nil {
		text += err.Error()
	}
	if text == r.was {
		return
	}
	r.was = text
	if err == nil {
		r.log.Info(what, "socket", r.cfg.Socket) //nolint:sloglint // each caller gives a constant
		return
	}
	r.log.Warn(what, "error", err) //nolint:sloglint // likewise
}

func (r *Reader) failed(err error) {
	r.say("pods' devices are not read", err)
	w := r.tree.Write(time.Now())
	w.Text(r.errRef, err.Error())
	w.Close()
}

// read asks the kubelet, and tells what it says.
func (r *Reader) read(ctx context.Context, k *Kubelet) error {
	held, err := k.Devices(ctx, r.cfg.Resources)
	if err != nil {
		return err
	}
	r.answers = true
	r.own(held)
	all, err := k.Allocatable(ctx, r.cfg.Resources) // which a kubelet of before 1.28 may not tell
	if r.tell(held, all); err != nil {
		return err
	}
	if r.was != "" {
		r.say("pods' devices are read", nil)
	}
	r.was = ""
	return nil
}

// own takes note of the devices that one pod alone has.
func (r *Reader) own(held []Device) {
	pods := map[string]string{}
	for _, d := range held {
		name := d.Namespace + "/" + d.Pod
		if had, shared := pods[d.ID]; shared && had != name {
			name = ""
		}
		pods[d.ID] = name
	}
	r.alone.Store(&pods)
}

// tell writes the tree.
func (r *Reader) tell(held []Device, all map[string]uint64) {
	gpus := map[string]uint32{}
	if r.gpus != nil {
		gpus = r.gpus()
	}
	count := map[string]uint64{}
	for name := range all {
		count[name] = 0
	}
	for _, d := range held {
		count[d.Resource] += d.Shares
	}
	now, at := map[string]bool{}, time.Now()
	left := max(0, len(held)-maxDevices)
	type entry struct {
		leaves [7]target.Ref
		values [7]string
	}
	var entries []entry
	for _, d := range held[:len(held)-left] {
		path := d.path()
		now[path] = true
		gpu := ""
		if n, ok := d.gpu(gpus); ok {
			gpu = "gpu" + strconv.FormatUint(uint64(n), 10)
		}
		e := entry{values: [7]string{d.Namespace, d.Pod, d.Container, d.Resource, d.ID, d.Claim, gpu}}
		for i, leaf := range [7]string{"namespace", "pod", "container", "resource", "id", "claim", "gpu"} {
			if e.values[i] != "" || r.told[path] {
				e.leaves[i] = r.tree.Leaf(path + "/state/" + leaf)
			} else {
				e.leaves[i] = -1
			}
		}
		entries = append(entries, e)
	}
	type amount struct {
		name, allocatable, held target.Ref
		resource                string
	}
	var amounts []amount
	for name := range count {
		path := "/pods/resource[name=" + target.Key(name) + "]"
		leaf := func(l string) target.Ref { return r.tree.Leaf(path + "/state/" + l) }
		amounts = append(amounts, amount{leaf("name"), leaf("allocatable"), leaf("held"), name})
	}
	for path := range r.told {
		if !now[path] {
			r.tree.Drop(path)
		}
	}
	for name := range r.kinds {
		if _, ok := count[name]; !ok {
			r.tree.Drop("/pods/resource[name=" + target.Key(name) + "]")
			delete(r.kinds, name)
		}
	}
	r.told = now
	w := r.tree.Write(at)
	defer w.Close()
	w.None(r.errRef)
	w.Uint(r.leftRef, uint64(left)) //nolint:gosec // not negative
	for _, e := range entries {
		for i, ref := range e.leaves {
			switch {
			case ref < 0:
			case e.values[i] == "":
				w.None(ref)
			default:
				w.Text(ref, e.values[i])
			}
		}
	}
	for _, a := range amounts {
		r.kinds[a.resource] = true
		w.Text(a.name, a.resource)
		if n, ok := all[a.resource]; ok {
			w.Uint(a.allocatable, n)
		} else {
			w.None(a.allocatable)
		}
		w.Uint(a.held, count[a.resource])
	}
}

// path is the entry of a device in the tree.
func (d *Device) path() string {
	return fmt.Sprintf("/pods/device[container=%s][id=%s][namespace=%s][pod=%s][resource=%s]",
		target.Key(d.Container), target.Key(d.ID), target.Key(d.Namespace), target.Key(d.Pod), target.Key(d.Resource))
}

// Minor is what a GPU is called by the number of its device file in the map of [NewReader].
func Minor(n uint64) string { return "minor " + strconv.FormatUint(n, 10) }

// gpu finds the GPU that a device is, or is a part of, among what GPUs are called: their
// UUIDs and those of their MIG devices, their addresses on the PCI bus, and [Minor].
func (d *Device) gpu(gpus map[string]uint32) (uint32, bool) {
	for _, name := range append([]string{d.ID}, d.cdi...) {
		if i := strings.LastIndexByte(name, '='); i >= 0 { // vendor/class=name (CDI specification, 0.6.0)
			name = name[i+1:]
		}
		if n, ok := gpus[name]; ok {
			return n, true
		}
		// NVIDIA's driver for claims calls a GPU gpu-<minor>, a MIG device gpu-<minor>-mig-<profile>…, and before it stands
		// the claim's UID where the claim configures it.
		if i := strings.LastIndex(name, "gpu-"); i >= 0 && strings.Contains(d.Resource, "nvidia.com") {
			minor, rest, part := strings.Cut(name[i+len("gpu-"):], "-")
			m, err := strconv.ParseUint(minor, 10, 16)
			if n, ok := gpus[Minor(m)]; err == nil && ok && (!part || strings.HasPrefix(rest, "mig-")) {
				return n, true
			}
		}
	}
	return 0, false
}
