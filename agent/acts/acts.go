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
	KindReset  = "reset"  // of GPUs
	KindReboot = "reboot" // of the server, orderly
)

// Config says with which programs acts are done.
type Config struct {
	NVIDIASMI string        `yaml:"nvidia_smi"`
	Reboot    []string      `yaml:"reboot"`
	Timeout   time.Duration `yaml:"timeout"` // of a reset
}

// Default returns the defaults.
func Default() Config {
	return Config{NVIDIASMI: "nvidia-smi", Reboot: []string{"systemctl", "reboot"}, Timeout: 5 * time.Minute}
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
	return nil
}

// GPU is what is known of one that is to be reset.
type GPU struct {
	Number    uint32
	PCI       string
	Processes []string // that have it open
}

// GPUs are the GPUs of the server.
type GPUs interface {
	// Group returns GPUs and those that must be reset with them.
	Group(ctx context.Context, numbers []uint32) ([]GPU, error)
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
}

// Hand does acts, one at a time.
type Hand struct {
	timeout time.Duration
	tools   Tools
	ledger  *Ledger
	gpus    GPUs // nil has none
	log     *slog.Logger
	boot    string
}

// New returns a hand; without tools it runs the programs of the configuration.
func New(cfg Config, tools Tools, ledger *Ledger, gpus GPUs, boot string, log *slog.Logger) *Hand {
	if tools == nil {
		tools = &programs{cfg}
	}
	return &Hand{timeout: cfg.Timeout, tools: tools, ledger: ledger, gpus: gpus, boot: boot, log: log}
}

// Do does an act that has an id, once, and returns what became of it. What stands against it
// from the beginning is an error, and leaves the id free.
func (h *Hand) Do(ctx context.Context, a Act) (Act, error) {
	if a.ID == "" {
		return a, errors.New("an act needs an id")
	}
	a.Boot = h.boot
	slices.Sort(a.GPUs)
	a.GPUs = slices.Compact(a.GPUs)
	if had, ok := h.ledger.Last(func(b *Act) bool { return b.ID == a.ID }); ok {
		if !had.same(&a) {
			return had, fmt.Errorf("%w: %s of %v", errOther, had.Kind, had.GPUs)
		}
		return had, nil
	}
	var group []GPU
	if a.Kind == KindReset {
		var err error
		if group, err = h.free(ctx, a.GPUs); err != nil {
			return a, err
		}
	}
	began, again, err := h.ledger.Begin(a)
	if err != nil || again {
		return began, err
	}
	h.log.Warn("act begins", "id", a.ID, "kind", a.Kind, "gpus", a.GPUs, "peer", a.By)
	// From here on it is done, whoever waits for it.
	outcome, message := h.carryOut(context.WithoutCancel(ctx), &began, group)
	h.log.Warn("act has ended", "id", a.ID, "outcome", outcome, "message", message)
	if outcome == Running { // a reboot: the next boot will tell
		return began, nil
	}
	began.Outcome, began.Message = outcome, message
	if err := h.ledger.End(a.ID, outcome, message); err != nil { // it was done all the same
		h.log.Error("what became of an act is not on the disk", "id", a.ID, "error", err)
	}
	return began, nil
}

// group returns the GPUs that are reset together.
func (h *Hand) group(ctx context.Context, numbers []uint32) ([]GPU, error) {
	switch {
	case h.gpus == nil:
		return nil, errors.New("this agent reads no GPUs, and resets none")
	case len(numbers) == 0:
		return nil, errors.New("no GPU is named")
	}
	ctx, done := context.WithTimeout(ctx, patience)
	defer done()
	return h.gpus.Group(ctx, numbers)
}

// free returns them, and refuses while something stands against their reset.
func (h *Hand) free(ctx context.Context, numbers []uint32) ([]GPU, error) {
	group, err := h.group(ctx, numbers)
	for _, g := range group {
		if why := g.held(); why != "" {
			return nil, errors.New(why)
		}
	}
	return group, err
}

// held says what stands against a reset now, or "".
func (g *GPU) held() string {
	switch {
	case len(g.Processes) > 0:
		return fmt.Sprintf("gpu%d is in use by %s", g.Number, strings.Join(g.Processes, ", "))
	case g.PCI == "":
		return fmt.Sprintf("gpu%d has no known address", g.Number)
	}
	return ""
}

func (h *Hand) carryOut(ctx context.Context, a *Act, group []GPU) (Outcome, string) {
	ctx, done := context.WithTimeout(ctx, h.timeout)
	defer done()
	if a.Kind == KindReboot {
		if text, err := h.tools.Reboot(ctx); err != nil {
			return Failed, text
		}
		return Running, ""
	}
	resume, err := h.gpus.Release(ctx)
	if err != nil {
		return Failed, err.Error()
	}
	defer resume()
	text, err := h.tools.Reset(ctx, group)
	if err != nil {
		return Failed, text
	}
	return Done, text
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
