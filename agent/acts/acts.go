package acts

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os/exec"
	"slices"
	"strings"
	"time"
)

// The kinds of acts.
const (
	KindReset    = "reset"    // of GPUs
	KindReboot   = "reboot"   // of the server, orderly
	KindReload   = "reload"   // of the driver of all GPUs
	KindValidate = "validate" // tests of GPUs
)

// Config says with which programs acts are done.
type Config struct {
	NVIDIASMI string        `yaml:"nvidia_smi"`
	Reboot    []string      `yaml:"reboot"`
	Timeout   time.Duration `yaml:"timeout"` // of a reset, and of a reload until it brings back what it took away
	Driver    Driver        `yaml:"driver"`
	Tests     Validation    `yaml:"validation"`
}

// Default returns the defaults.
func Default() Config {
	return Config{
		NVIDIASMI: "nvidia-smi", Reboot: []string{"systemctl", "reboot"}, Timeout: 5 * time.Minute,
		Driver: Driver{
			Units:     []string{"nvidia-dcgm", "dcgm", "nvidia-imex", "nvidia-fabricmanager", "nvidia-persistenced"},
			Modules:   []string{"nvidia_drm", "nvidia_modeset", "nvidia_uvm", "nvidia_peermem", "nvidia"},
			Systemctl: "systemctl", Unload: "rmmod", Load: "modprobe", Proc: "/proc",
		},
		Tests: Validation{Memory: 30 * time.Second, Burst: 10 * time.Second, Timeout: 45 * time.Minute, CUDA: "libcuda.so.1"},
	}
}

// Validate names the first value that makes no sense.
func (c *Config) Validate() error {
	switch {
	case c.NVIDIASMI == "":
		return errors.New("nvidia_smi must be set")
	case len(c.Reboot) == 0 || c.Reboot[0] == "":
		return errors.New("reboot must name a program")
	case c.Timeout < time.Second:
		return errors.New("timeout must be at least 1s")
	}
	return errors.Join(c.Driver.validate(), c.Tests.validate())
}

// GPU is what is known of one that is to be reset.
type GPU struct {
	Number    uint32
	PCI       string
	Processes []string // that have it open
}

// GPUs are the GPUs of the server.
type GPUs interface {
	// Known returns the numbers of those that should be there.
	Known(ctx context.Context) ([]uint32, error)
	// Group returns GPUs and those that must be reset with them; without numbers, all that are there.
	Group(ctx context.Context, numbers []uint32) ([]GPU, error)
	// Read reads one now, by the leaves of its list in auspex-gpu: what moves slowly as well, or without.
	Read(ctx context.Context, number uint32, all bool) (map[string]float64, error)
	// Release gives the GPUs out of hand until resume is called: the driver resets none
	// that somebody has open.
	Release(ctx context.Context) (resume func(), err error)
}

// Tools are what acts are done with. They return what they say.
type Tools interface {
	// Reset resets GPUs together.
	Reset(ctx context.Context, group []GPU) (said string, err error)
	// Reboot begins to reboot the server.
	Reboot(ctx context.Context) (said string, err error)
	// Reload loads the driver anew. It calls away before it takes anything away, and brings that back
	// whatever happens; an error that wraps [ErrAway] means that not all of it is back.
	Reload(ctx context.Context, away func(Away) error) (said string, err error)
	// Restore brings back what a reload took away.
	Restore(ctx context.Context, what Away) error
}

// Needs are what a hand works with. Without tools it runs the programs of the configuration.
type Needs struct {
	Tools       Tools
	Ledger      *Ledger
	GPUs        GPUs        // nil has none
	Reports     *Reports    // of validations
	Computer    Computer    // nil has none
	Diagnostics Diagnostics // nil has none
	Boot        string      // id of the server's boot
	Log         *slog.Logger
}

// Hand does acts, one at a time.
type Hand struct {
	Needs

	cfg Config
}

// New returns a hand.
func New(cfg Config, n Needs) *Hand {
	if n.Tools == nil {
		n.Tools = &programs{cfg}
	}
	return &Hand{n, cfg}
}

// Run brings back what a reload took away during which the agent ended, and returns.
func (h *Hand) Run(ctx context.Context) {
	for {
		a, ok := h.Ledger.Last(func(a *Act) bool { return a.Away != nil && a.Outcome != Running })
		if !ok {
			return
		}
		err := h.Tools.Restore(ctx, *a.Away)
		if err == nil {
			err = h.Ledger.Restored(a.ID)
		}
		if err == nil {
			h.Log.Warn("what the reload of a driver took away is back", "id", a.ID, "modules", a.Away.Modules, "units", a.Away.Units)
			continue
		}
		h.Log.Error("what the reload of a driver took away is not back", "id", a.ID, "error", err)
		select {
		case <-ctx.Done():
			return
		case <-time.After(again):
		}
	}
}

// again is the wait until what is not back is brought back anew.
const again = 30 * time.Second

// Do does an act that has an id, once, and returns what became of it. What stands against it
// from the beginning is an error, and leaves the id free.
func (h *Hand) Do(ctx context.Context, a Act) (Act, error) {
	if a.ID == "" {
		return a, errors.New("an act needs an id")
	}
	a.Boot = h.Boot
	slices.Sort(a.GPUs)
	a.GPUs = slices.Compact(a.GPUs)
	if had, ok := h.Ledger.Last(func(b *Act) bool { return b.ID == a.ID }); ok {
		if !had.same(&a) {
			return had, fmt.Errorf("%w: %s of %v", errOther, had.Kind, had.GPUs)
		}
		return had, nil
	}
	group, against, err := h.would(ctx, &a)
	switch {
	case err != nil:
		return a, err
	case against != "":
		return a, errors.New(against)
	}
	began, again, err := h.Ledger.Begin(a)
	if err != nil || again {
		return began, err
	}
	h.Log.Warn("act begins", "id", a.ID, "kind", a.Kind, "gpus", a.GPUs, "peer", a.By)
	// From here on it is done, whoever waits for it.
	r := h.carryOut(context.WithoutCancel(ctx), &began, group)
	h.Log.Warn("act has ended", "id", a.ID, "outcome", r.outcome, "message", r.message)
	if r.outcome == Running { // a reboot: the next boot will tell
		return began, nil
	}
	began.Outcome, began.Message = r.outcome, r.message
	if err := h.Ledger.End(a.ID, r.outcome, r.message, r.away); err != nil { // it was done all the same
		h.Log.Error("what became of an act is not on the disk", "id", a.ID, "error", err)
	}
	if r.resume != nil { // last: another driver may end the agent
		r.resume()
	}
	return began, nil
}

// would returns the GPUs that an act is on, and what stands against it now.
func (h *Hand) would(ctx context.Context, a *Act) (group []GPU, against string, err error) {
	if a.Kind == KindReboot {
		return nil, "", nil
	}
	switch {
	case h.GPUs == nil:
		return nil, "", errors.New("this agent reads no GPUs, and has no hand on any")
	case len(a.GPUs) == 0 && a.Kind == KindReset:
		return nil, "", errors.New("no GPU is named")
	}
	ctx, done := context.WithTimeout(ctx, patience)
	defer done()
	switch a.Kind {
	case KindValidate:
		group, err = h.subjects(ctx, a.GPUs)
	case KindReload:
		if group, err = h.GPUs.Group(ctx, nil); err != nil { // the driver answers nobody: that is what it is loaded anew for
			group, err = nil, nil
		}
	default:
		group, err = h.GPUs.Group(ctx, a.GPUs)
	}
	if err != nil {
		return nil, "", err
	}
	var whys []string
	for _, g := range group {
		if why := g.held(a); why != "" {
			whys = append(whys, why)
		}
	}
	return group, strings.Join(whys, "; "), nil
}

// held says what stands against an act on a GPU now, or "".
func (g *GPU) held(a *Act) string {
	switch {
	case a.Kind == KindValidate && a.Level < levelLoad:
		return ""
	case len(g.Processes) > 0:
		return fmt.Sprintf("gpu%d is in use by %s", g.Number, strings.Join(g.Processes, ", "))
	case g.PCI == "" && a.Kind == KindReset:
		return fmt.Sprintf("gpu%d has no known address", g.Number)
	}
	return ""
}

// ending is what became of an act.
type ending struct {
	outcome Outcome
	message string
	away    bool   // not all is back that it took away
	resume  func() // to be called when it is written down
}

func (h *Hand) carryOut(ctx context.Context, a *Act, group []GPU) ending {
	if a.Kind == KindValidate {
		return h.validate(ctx, a, group)
	}
	ctx, done := context.WithTimeout(ctx, h.cfg.Timeout)
	defer done()
	if a.Kind == KindReboot {
		if text, err := h.Tools.Reboot(ctx); err != nil {
			return ending{outcome: Failed, message: text}
		}
		return ending{outcome: Running}
	}
	resume, err := h.GPUs.Release(ctx)
	if err != nil {
		return ending{outcome: Failed, message: err.Error()}
	}
	var text string
	if a.Kind == KindReload {
		text, err = h.Tools.Reload(ctx, func(what Away) error { return h.Ledger.Takes(a.ID, what) })
	} else {
		text, err = h.Tools.Reset(ctx, group)
	}
	end := ending{outcome: Done, message: text, resume: resume}
	if err != nil {
		end.outcome, end.away = Failed, errors.Is(err, ErrAway)
	}
	return end
}

// programs are those of the system and of the driver.
type programs struct{ cfg Config }

// Reset implements [Tools].
func (p *programs) Reset(ctx context.Context, group []GPU) (string, error) {
	var at []string
	for _, g := range group {
		at = append(at, g.PCI)
	}
	return command(ctx, p.cfg.NVIDIASMI, "--gpu-reset", "-i", strings.Join(at, ","))
}

// Reboot implements [Tools].
func (p *programs) Reboot(ctx context.Context) (string, error) { return command(ctx, p.cfg.Reboot...) }

// patience bounds what it takes to look at the GPUs.
const patience = 30 * time.Second

// maxOutput bounds what is kept of what a program says, in bytes.
const maxOutput = 2000

// command runs a program and returns what it said.
func command(ctx context.Context, args ...string) (string, error) {
	cmd := exec.CommandContext(ctx, args[0], args[1:]...)
	cmd.WaitDelay = time.Second
	out, err := cmd.CombinedOutput()
	text := string(bytes.TrimSpace(out[:min(len(out), maxOutput)]))
	if err != nil {
		return fmt.Sprintf("%s: %v: %s", args[0], err, text), err
	}
	return text, nil
}
