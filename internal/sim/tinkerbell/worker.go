package tinkerbell

import (
	"cmp"
	"errors"
	"maps"
	"path"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"auspex/internal/sim/fleet"
	"auspex/internal/sim/kube"
)

// worker is the program in the installer's system that runs the actions of workflows (tink v0.12.2,
// cmd/tink-worker), and the server that it asks (internal/server).
type worker struct {
	at   fleet.Netbooted
	dead bool
	poll time.Time // when it asks for work
	run  *execution
}

// execution is an action that runs, or has run and is to be told of.
type execution struct {
	workflow     kube.ID
	task, action string
	number       int // of the action in the workflow, from 1
	last         bool
	spec         action
	environment  map[string]string

	ends    time.Time
	outcome string
	why     string
	disk    string // that is written
	proof   <-chan error
}

var (
	errRejected = errors.New("the action is not the current one")
	errAway     = errors.New("the interface does not answer")
)

// work moves all workers on.
func (s *Service) work(now time.Time, away bool) {
	alive := map[string]*worker{}
	s.waiting = nil
	for _, at := range s.fleet.Netbooted() {
		w := s.workers[at.Server]
		if w == nil || w.at.Life != at.Life {
			w = &worker{poll: now}
		}
		w.at = at
		alive[at.Server] = w
		if !w.dead {
			s.step(w, now, away)
		}
	}
	s.workers = alive
}

func (s *Service) step(w *worker, now time.Time, away bool) {
	for w.run != nil && !w.dead && !now.Before(w.run.ends) {
		if !s.finish(w, now, away) {
			return
		}
	}
	if w.run == nil && !w.dead && !now.Before(w.poll) {
		if w.poll = now.Add(s.timing.Poll); !away {
			s.ask(w, now)
		}
	}
}

// ask looks for a workflow whose next action is this worker's.
func (s *Service) ask(w *worker, now time.Time) {
	if s.waiting == nil {
		s.waiting = s.assigned()
	}
	if wf := s.waiting[w.at.MAC]; wf != nil {
		s.start(w, wf, now)
	}
}

// assigned are the first workflows whose next action is a worker's, by the address of that.
func (s *Service) assigned() map[string]*workflow {
	out := map[string]*workflow{}
	for _, o := range s.store.List(workflowPlural, Namespace) {
		var wf workflow
		if err := decode(o, &wf); err != nil || wf.Status.State != running && wf.Status.State != pending {
			continue
		}
		t, a, ok := wf.Status.current()
		if ok && out[t.WorkerAddr] == nil && a.Status != failed && a.Status != timeout {
			out[t.WorkerAddr] = &wf
		}
	}
	return out
}

// start runs the current action of a workflow.
func (s *Service) start(w *worker, wf *workflow, now time.Time) {
	t, a, _ := wf.Status.current()
	id := kube.ID{Plural: workflowPlural, Namespace: Namespace, Name: wf.Name}
	x := &execution{workflow: id, task: t.Name, action: a.Name, spec: *a, environment: maps.Clone(t.Environment)}
	if x.environment == nil {
		x.environment = map[string]string{}
	}
	maps.Copy(x.environment, a.Environment)
	total := 0
	for i := range wf.Status.Tasks {
		for k := range wf.Status.Tasks[i].Actions {
			if total++; a == &wf.Status.Tasks[i].Actions[k] {
				x.number = total
			}
		}
	}
	x.last = x.number == total
	if a.Status != running { // one that ran when its worker ended is run again, and not told of
		if err := s.report(x, running, now, false); err != nil {
			return // it asks again
		}
		s.fleet.InstallNote(w.at.Server, "begun", wf.Name, a.Name)
	}
	w.run = x
	if w.at.Fault.Hang == x.number {
		w.dead = true // nobody is told
		return
	}
	s.execute(w, x, now)
}

// execute begins an action, and says how it will end.
func (s *Service) execute(w *worker, x *execution, now time.Time) {
	took := s.timing.Action
	x.outcome = success
	fails := func(why string) { x.outcome, x.why = failed, why }
	if writes(x.spec.Image) {
		took = s.timing.Write
		x.disk = x.environment["DEST_DISK"]
		if err := s.image(x.environment["IMG_URL"]); err != nil {
			took = s.timing.Action
			fails(err.Error())
		} else if err := s.fleet.Overwrite(w.at, x.disk); err != nil {
			took = s.timing.Action
			fails(err.Error())
		}
	}
	switch name := program(x.spec.Image); {
	case name == "erase":
		for dev := range strings.FieldsSeq(x.environment["DISKS"]) {
			if err := s.fleet.Erase(w.at, dev); err != nil {
				fails(err.Error())
			}
		}
	case name == "auspex-agent" && slices.Equal(x.spec.Command, []string{"wipe-proof"}):
		x.proof = s.prove(w.at, x.environment)
	}
	if w.at.Fault.Fail == x.number && x.outcome == success {
		took /= 2
		fails("exit status 1")
	}
	if limit := time.Duration(x.spec.Timeout) * time.Second; limit > 0 && took > limit {
		took, x.outcome, x.why = limit, timeout, "its time is up"
	}
	x.ends = now.Add(took)
}

// writes tells whether an action writes a system to a disk, by its image: image2disk, oci2disk, archive2disk and
// the like.
func writes(image string) bool { return strings.HasSuffix(program(image), "2disk") }

// program is the name of an image without its place and its tag.
func program(image string) string {
	name := path.Base(image)
	name, _, _ = strings.Cut(name, "@")
	name, _, _ = strings.Cut(name, ":")
	return name
}

// reboots tells whether an action restarts the server, and when.
func (x *execution) reboots() (after time.Duration, ok bool) {
	name := program(x.spec.Image)
	if !slices.Contains([]string{"waitdaemon", "reboot", "kexec"}, name) && (len(x.spec.Command) == 0 || path.Base(x.spec.Command[0]) != "reboot") {
		return 0, false
	}
	n, err := strconv.Atoi(cmp.Or(x.environment["WAIT_SECONDS"], "1"))
	if err != nil || n < 0 {
		n = 1
	}
	return time.Duration(n) * time.Second, true
}

// driverWords are how templates and user data name the version of a driver.
var driverWords = regexp.MustCompile(`(?i)nvidia[a-z_.-]*(?:driver|version)[a-z_.-]*["' ]*[:= -]["' v]*([0-9]{3}\.[0-9]{2,3}(?:\.[0-9]{2})?)`)

// driver is the version of a driver that a workflow installs, or "".
func (s *Service) driver(wf *workflow) string {
	texts := []string{}
	for i := range wf.Status.Tasks {
		for k := range wf.Status.Tasks[i].Actions {
			env := wf.Status.Tasks[i].Actions[k].Environment
			for _, name := range slices.Sorted(maps.Keys(env)) {
				texts = append(texts, name+"="+env[name])
			}
		}
	}
	if h, err := s.hardware(wf.Spec.HardwareRef); err == nil && h.Spec.UserData != nil {
		texts = append(texts, *h.Spec.UserData)
	}
	for _, t := range texts {
		if m := driverWords.FindStringSubmatch(t); m != nil {
			return m[1]
		}
	}
	return ""
}

// finish tells what has become of an action, and goes on with the next one. It is false where nobody can
// be told yet.
func (s *Service) finish(w *worker, now time.Time, away bool) bool {
	x := w.run
	if x.proof != nil && x.outcome == success {
		select {
		case err := <-x.proof:
			if x.proof = nil; err != nil {
				x.outcome, x.why = failed, err.Error()
			}
		default: // it goes on
			x.ends = now.Add(s.timing.Action)
			return false
		}
	}
	if x.outcome == success && x.disk != "" {
		sys := fleet.System{}
		if o, err := s.store.Get(x.workflow); err == nil {
			var wf workflow
			if decode(o, &wf) == nil {
				sys.Driver = s.driver(&wf)
			}
		}
		if err := s.fleet.Written(w.at, x.disk, sys); err != nil {
			w.run = nil
			return false
		}
		x.disk = ""
	}
	if s.report(x, x.outcome, now, away) != nil {
		x.ends = now.Add(s.timing.Poll) // until it is taken
		return false
	}
	if w.run = nil; x.outcome != success {
		s.fleet.InstallNote(w.at.Server, "failed", x.workflow.Name, x.action+": "+x.why)
		w.poll = now.Add(s.timing.Poll)
		return true
	}
	s.fleet.InstallNote(w.at.Server, "done", x.workflow.Name, x.action)
	if x.last {
		w.poll = now.Add(s.timing.Poll)
		if after, ok := x.reboots(); ok {
			_ = s.fleet.LeaveInstaller(w.at, after) // a server that has restarted meanwhile need not
		}
		return true
	}
	if o, err := s.store.Get(x.workflow); err == nil {
		var wf workflow
		if decode(o, &wf) == nil {
			if t, _, ok := wf.Status.current(); ok && t.WorkerAddr == w.at.MAC {
				s.start(w, &wf, now)
			}
		}
	}
	return true
}

// report writes what an action is or has come to (tink v0.12.2, internal/server, kubernetes_api_workflow.go).
func (s *Service) report(x *execution, state string, now time.Time, away bool) error {
	if away {
		return errAway
	}
	o, err := s.store.Get(x.workflow)
	if err != nil {
		return err
	}
	var wf workflow
	if err := decode(o, &wf); err != nil {
		return err
	}
	t, a, ok := wf.Status.current()
	if !ok || t.Name != x.task || a.Name != x.action {
		return errRejected
	}
	a.Status = state
	switch state {
	case running:
		at := metav1.NewTime(now.UTC())
		a.StartedAt, wf.Status.State = &at, running
	case failed, timeout:
		wf.Status.State = state
	case success:
		if x.last {
			wf.Status.State = post
		}
	}
	if state != running && a.StartedAt != nil {
		a.Seconds = int64(now.Sub(a.StartedAt.Time).Seconds())
	}
	_, err = s.putStatus(x.workflow, wf.ResourceVersion, &wf.Status)
	return err
}
