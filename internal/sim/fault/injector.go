package fault

import (
	"cmp"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"slices"
	"strings"
	"time"

	"auspex/internal/sim/device"
	"auspex/internal/sim/fleet"
	"auspex/internal/sim/slurm"
)

// Injector plays a script. It is not safe for use by several goroutines at the
// same time.
type Injector struct {
	fleet *fleet.Fleet
	slurm *slurm.Controller
	start time.Time
	plan  []Planned
	todo  []step
	begun []bool // and not ended, by plan
}

// Planned is a fault with its target.
type Planned struct {
	Fault
	Resource string // the id of the resource or of the job
}

type step struct {
	at    time.Time
	begin bool
	plan  int
}

// NewInjector chooses the targets of a script. The same script, seed and state
// of the fleet give the same targets. What is drawn stays clear of what other
// faults of the script hit: other racks, and other jobs, while there are some.
func NewInjector(f *fleet.Fleet, c *slurm.Controller, s *Script, seed uint64, start time.Time) (*Injector, error) {
	in := &Injector{fleet: f, slurm: c, start: start, plan: make([]Planned, len(s.Faults)), begun: make([]bool, len(s.Faults))}
	ch := newChooser(f, c, seed)
	order := make([]int, len(s.Faults))
	for i := range order {
		order[i] = i
	}
	// What is fixed or large is chosen first, so that the rest can stay clear of it.
	slices.SortStableFunc(order, func(a, b int) int {
		return cmp.Compare(weight(&s.Faults[a]), weight(&s.Faults[b]))
	})
	for _, i := range order {
		fl := s.Faults[i]
		id, err := ch.choose(&fl)
		if err != nil {
			return nil, fmt.Errorf("script line %d: %s: %w", fl.line, fl.Kind, err)
		}
		in.plan[i] = Planned{fl, id}
	}
	for i, p := range in.plan {
		in.todo = append(in.todo, step{start.Add(p.At), true, i})
		if p.For > 0 {
			in.todo = append(in.todo, step{start.Add(p.At + p.For), false, i})
		}
	}
	slices.SortStableFunc(in.todo, func(a, b step) int { return a.at.Compare(b.at) })
	return in, nil
}

// Plan returns the faults with their targets, in the order of the script.
func (in *Injector) Plan() []Planned { return slices.Clone(in.plan) }

// Active is a fault that has begun and has not ended.
type Active struct {
	Kind     string `json:"kind"`
	Resource string `json:"resource"`
}

// Active returns the faults that have begun and not ended. Those that are
// moments, as a crash of a program, are not among them.
func (in *Injector) Active() []Active {
	out := []Active{}
	for i, p := range in.plan {
		if in.begun[i] && lasting(p.Kind) {
			out = append(out, Active{p.Kind, p.Resource})
		}
	}
	return out
}

// End notes that a fault of a run before has been mended.
func (a Active) End(f *fleet.Fleet) { f.Note(a.Kind, false, []string{a.Resource}, kinds[a.Kind].About) }

func lasting(kind string) bool {
	switch kind {
	case "job_crash", "xid", "xid_unknown", "dimm_errors", "link_flap", "node_crash":
		return false
	}
	return true
}

// Next returns when the next step is due, or false when nothing is left.
func (in *Injector) Next() (time.Time, bool) {
	if len(in.todo) == 0 {
		return time.Time{}, false
	}
	return in.todo[0].at, true
}

// Step does what is due. Errors of single faults do not stop the others.
func (in *Injector) Step(now time.Time) error {
	var errs []error
	for len(in.todo) > 0 && !in.todo[0].at.After(now) {
		st := in.todo[0]
		in.todo = in.todo[1:]
		p := &in.plan[st.plan]
		in.begun[st.plan] = st.begin
		if err := in.apply(p, st.begin); err != nil {
			errs = append(errs, fmt.Errorf("inject %s into %s: %w", p.Kind, p.Resource, err))
		}
	}
	return errors.Join(errs...)
}

func (in *Injector) apply(p *Planned, begin bool) error {
	f, id := in.fleet, p.Resource
	targets := []string{id}
	if p.Kind == "job_crash" {
		if begin {
			return in.crashJob(p)
		}
		return nil
	}
	f.Note(p.Kind, begin, targets, kinds[p.Kind].About)
	pick := func(v float64) float64 {
		if begin {
			return v
		}
		return 0
	}
	switch p.Kind {
	case "feed_loss":
		return f.SetFeed(id, !begin)
	case "psu_failure":
		return f.SetPSU(id, begin)
	case "crac_failure":
		return f.SetCRAC(id, begin)
	case "fan_wear":
		d := p.Crossing
		if !begin {
			d = 0
		}
		_, err := f.WearFan(id, d)
		return err
	case "fan_failure":
		return f.StopFan(id, begin)
	case "fabric_manager":
		return f.SetFabricManager(id, begin)
	case "disk_failure":
		d := p.Crossing
		if !begin {
			d = 0
		}
		return f.WearDisk(id, d)
	case "disk_lost":
		return f.SetDisk(id, begin)
	case "ecc_ce":
		return f.GrowECC(id, pick(p.Rate))
	case "nvlink_errors":
		return f.BreakNVLink(id, pick(p.Rate))
	case "reset_fails":
		return f.SetStubborn(id, begin)
	case "setting_slips":
		return f.SetSlipping(id, begin)
	case "memory_weak":
		return f.SetWeak(id, begin)
	case "compute_wrong":
		return f.SetWrong(id, begin)
	case "reload_fails":
		return f.SetRigid(id, begin)
	case "optics_degraded":
		return f.DegradeOptics(id, pick(p.Rate))
	case "link_failure":
		return f.SetLink(id, begin)
	case "switch_failure":
		return f.SetSwitch(id, begin)
	case "bmc_mute", "bmc_garble", "bmc_slow", "bmc_ignores_sets":
		var v device.Fault
		if begin {
			v = device.Fault{Mute: p.Kind == "bmc_mute", Garble: p.Kind == "bmc_garble", IgnoreSets: p.Kind == "bmc_ignores_sets"}
			if p.Kind == "bmc_slow" {
				v.Delay = p.Delay
			}
		}
		return f.SetBMCFault(id, v)
	case "install_fails", "install_hangs":
		var v fleet.InstallFault
		if begin && p.Kind == "install_fails" {
			v.Fail = p.Action
		} else if begin {
			v.Hang = p.Action
		}
		return f.SetInstallFault(id, v)
	case "wipe_fails", "wipe_lies":
		v := fleet.WipeWell
		if begin && p.Kind == "wipe_fails" {
			v = fleet.WipeFails
		} else if begin {
			v = fleet.WipeLies
		}
		return f.SetWipeFault(id, v)
	case "installer_away", "installer_denies", "installer_slow":
		var v device.Fault
		if begin {
			v.Away = p.Kind == "installer_away"
			if p.Kind == "installer_denies" {
				v.Status = http.StatusForbidden
			}
			if p.Kind == "installer_slow" {
				v.Delay = p.Delay
			}
		}
		f.SetServiceFault(v)
		return nil
	case "bmc_clock":
		if !begin {
			return f.SkewBMC(id, 0)
		}
		return f.SkewBMC(id, p.Skew)
	}
	if !begin { // the others are moments and have no end of their own
		return nil
	}
	switch p.Kind {
	case "gpu_fallen_off":
		return f.LoseGPU(id, p.Dead)
	case "driver_damaged":
		return f.DamageDriver(id)
	case "gpu_fails":
		return f.FailGPU(id, p.Dead)
	case "gpu_hang":
		return f.HangGPU(id)
	case "ecc_ue":
		return f.LoseMemory(id, p.Contained)
	case "xid", "xid_unknown":
		return f.ErrorGPU(id, p.Code, p.Text)
	case "node_crash":
		dimm := -1
		if p.Dimm != nil {
			dimm = *p.Dimm
		}
		return f.CrashHost(id, dimm)
	case "dimm_errors":
		dimm := 0
		if p.Dimm != nil {
			dimm = *p.Dimm
		}
		return f.WearMemory(id, dimm)
	case "link_flap":
		return f.FlapLink(id, p.Times)
	}
	return fmt.Errorf("no such kind: %s", p.Kind)
}

// crashJob crashes a job's program on all its nodes. Where the job that was
// chosen has ended, another one of its size takes its place.
func (in *Injector) crashJob(p *Planned) error {
	var job *slurm.Job
	for _, j := range in.slurm.Running() {
		if j.Key() == p.Resource {
			job = &j
			break
		}
		if job == nil && p.Target.ID == "" && len(j.Nodes) == max(p.Target.Nodes, 1) {
			job = &j
		}
	}
	if job == nil {
		return errors.New("no such job runs")
	}
	p.Resource = job.Key()
	in.fleet.Note(p.Kind, true, append([]string{p.Resource}, job.Nodes...), kinds[p.Kind].About)
	for _, n := range job.Nodes {
		if err := in.fleet.CrashProgram(n, job.GPUs, true); err != nil {
			return err
		}
	}
	id := job.ID
	in.slurm.FailAfter(id, 3*time.Second, 1, 0)
	return nil
}

func weight(f *Fault) int {
	switch kinds[f.Kind].Target {
	case "job":
		return 1
	case "pdu", "crac", "switch", installer:
		return 0
	case "fan":
		return 3
	}
	return 2
}

// chooser draws targets.
type chooser struct {
	fleet *fleet.Fleet
	cfg   fleet.Config
	rng   *rand.Rand
	jobs  []slurm.Job
	racks map[int]bool // that are taken
	hosts map[string]bool
	taken map[string]bool // jobs
}

func newChooser(f *fleet.Fleet, c *slurm.Controller, seed uint64) *chooser {
	return &chooser{
		fleet: f, cfg: f.Config(), rng: rand.New(rand.NewPCG(seed, 0xfa_17)), jobs: c.Running(),
		racks: map[int]bool{}, hosts: map[string]bool{}, taken: map[string]bool{},
	}
}

// installer is the one target of its kind: the interface of the installer.
const installer = "installer"

func rackOf(host string) int {
	var r int
	if i := strings.Index(host, "-r"); i >= 0 {
		_, _ = fmt.Sscanf(host[i:], "-r%02d", &r)
	}
	return r
}

func (c *chooser) jobOf(host string) *slurm.Job {
	for i := range c.jobs {
		if slices.Contains(c.jobs[i].Nodes, host) {
			return &c.jobs[i]
		}
	}
	return nil
}

// free tells whether a server is clear of all that was chosen.
func (c *chooser) free(host string) bool { return !c.racks[rackOf(host)] && !c.hosts[host] }

func (c *chooser) rack(want int) (int, error) {
	if want != 0 {
		if want < 1 || want > c.cfg.Racks {
			return 0, fmt.Errorf("there is no rack %d; there are 1 to %d", want, c.cfg.Racks)
		}
		return want, nil
	}
	var all []int
	for r := 1; r <= c.cfg.Racks; r++ {
		clear := !c.racks[r]
		for h := range c.hosts {
			clear = clear && rackOf(h) != r
		}
		if clear {
			all = append(all, r)
		}
	}
	if all == nil {
		return 1 + c.rng.IntN(c.cfg.Racks), nil
	}
	return all[c.rng.IntN(len(all))], nil
}

// server draws a server. Busy ones are preferred, and for wear those whose job
// goes on for long, so that the load stays as it is.
func (c *chooser) server(t *Target, long bool) (string, error) {
	if t.Rack != 0 {
		if _, err := c.rack(t.Rack); err != nil {
			return "", err
		}
	}
	if t.Server < 0 || t.Server > c.cfg.ServersPerRack {
		return "", fmt.Errorf("there is no server %d in a rack; there are 1 to %d", t.Server, c.cfg.ServersPerRack)
	}
	var best []string
	level := -1
	for _, s := range c.fleet.Servers() {
		if t.Rack != 0 && rackOf(s) != t.Rack || t.Server != 0 && !strings.HasSuffix(s, fmt.Sprintf("-%02d", t.Server)) {
			continue
		}
		l := 0
		j := c.jobOf(s)
		if c.free(s) {
			l += 4
		}
		if j != nil && !c.taken[j.Key()] {
			l++
			if !long || len(j.Nodes) >= 4 {
				l++
			}
		}
		if l > level {
			best, level = best[:0], l
		}
		if l == level {
			best = append(best, s)
		}
	}
	if len(best) == 0 {
		return "", errors.New("no such server")
	}
	return best[c.rng.IntN(len(best))], nil
}

func (c *chooser) index(what string, want *int, first, count int) (int, error) {
	if want == nil {
		return first + c.rng.IntN(count), nil
	}
	if *want < first || *want >= first+count {
		return 0, fmt.Errorf("there is no %s %d; there are %d to %d", what, *want, first, first+count-1)
	}
	return *want, nil
}

func (c *chooser) choose(f *Fault) (string, error) {
	t := &f.Target
	kind := kinds[f.Kind].Target
	if t.ID != "" {
		if kind != "job" && kind != installer && !c.fleet.Has(t.ID, kind) {
			return "", fmt.Errorf("%q is no %s of this fleet", t.ID, kind)
		}
		c.take(kind, t.ID)
		return t.ID, nil
	}
	id, err := c.draw(f, kind)
	if err == nil {
		c.take(kind, id)
	}
	return id, err
}

func (c *chooser) draw(f *Fault, kind string) (string, error) {
	t := &f.Target
	switch kind {
	case "pdu":
		r, err := c.rack(t.Rack)
		if err != nil {
			return "", err
		}
		feed := t.Feed
		switch feed {
		case "":
			feed = []string{"a", "b"}[c.rng.IntN(2)]
		case "a", "b":
		default:
			return "", fmt.Errorf("feed is %q; it must be a or b", feed)
		}
		return fmt.Sprintf("pdu-r%02d-%s", r, feed), nil
	case installer:
		return installer, nil
	case "crac":
		return fmt.Sprintf("crac-%d", 1+c.rng.IntN(c.cfg.CRACs)), nil
	case "switch":
		if t.Switch != "" {
			return t.Switch, nil
		}
		r, err := c.rack(t.Rack)
		return fmt.Sprintf("leaf-r%02d", r), err
	case "port":
		sw := t.Switch
		if sw == "" {
			r, err := c.rack(t.Rack)
			if err != nil {
				return "", err
			}
			sw = fmt.Sprintf("leaf-r%02d", r)
		}
		if t.Port != "" {
			return sw + "/" + t.Port, nil
		}
		ports := c.fleet.PortsOf(sw)
		if len(ports) == 0 {
			return "", fmt.Errorf("switch %q has no port with a cable", sw)
		}
		return ports[c.rng.IntN(len(ports))], nil
	case "job":
		return c.job(t)
	}
	s, err := c.server(t, kind == "fan")
	if err != nil {
		return "", err
	}
	var n int
	switch kind {
	case "server":
		return s, nil
	case "gpu":
		n, err = c.index("gpu", t.GPU, 0, c.cfg.GPUs)
	case "psu":
		n, err = c.index("psu", t.PSU, 0, 6)
	case "disk":
		n, err = c.index("disk", t.Disk, 0, 2)
	case "fan":
		var want *int
		if t.Fan != 0 {
			want = &t.Fan
		}
		n, err = c.index("fan", want, 1, 8)
	}
	return fmt.Sprintf("%s/%s%d", s, kind, n), err
}

// job draws a running job of the wanted size; where there is none, the next
// smaller one.
func (c *chooser) job(t *Target) (string, error) {
	if t.Nodes == 0 {
		t.Nodes = 8
	}
	for size := t.Nodes; size > 0; size-- {
		var best []string
		level := -1
		for i := range c.jobs {
			j := &c.jobs[i]
			if len(j.Nodes) != size || c.taken[j.Key()] {
				continue
			}
			l := 0
			for _, n := range j.Nodes {
				if c.free(n) {
					l++
				}
			}
			if l > level {
				best, level = best[:0], l
			}
			if l == level {
				best = append(best, j.Key())
			}
		}
		if len(best) > 0 {
			t.Nodes = size
			return best[c.rng.IntN(len(best))], nil
		}
	}
	return "", errors.New("no job runs")
}

// take marks what a fault will touch.
func (c *chooser) take(kind, id string) {
	owner, _, _ := strings.Cut(id, "/")
	switch kind {
	case "pdu":
		c.racks[rackOf(id)] = true
	case "switch", "port":
		c.racks[rackOf(owner)] = true
	case "job":
		c.takeJob(id)
	case "fan":
		c.hosts[owner] = true
	case "gpu", "server", "psu":
		c.hosts[owner] = true
		if j := c.jobOf(owner); j != nil {
			c.takeJob(j.Key())
		}
	}
}

func (c *chooser) takeJob(key string) {
	c.taken[key] = true
	for i := range c.jobs {
		if c.jobs[i].Key() == key {
			for _, n := range c.jobs[i].Nodes {
				c.hosts[n] = true
			}
		}
	}
}
