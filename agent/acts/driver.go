package acts

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

// ErrAway says that a reload of the driver has not brought back all that it took away.
var ErrAway = errors.New("not all is back that was taken away")

// Driver says how the driver of the GPUs is loaded anew.
type Driver struct {
	Units     []string `yaml:"units"`     // of systemd that hold the driver; those that run are stopped meanwhile, in this order
	Modules   []string `yaml:"modules"`   // of the kernel, in the order in which they are unloaded; those that are loaded
	Systemctl string   `yaml:"systemctl"` // programs
	Unload    string   `yaml:"unload"`
	Load      string   `yaml:"load"`
	Proc      string   `yaml:"proc"` // where the kernel shows modules and processes
}

func (d *Driver) validate() error {
	switch {
	case len(d.Modules) == 0:
		return errors.New("driver.modules must name the modules of the driver")
	case d.Systemctl == "" || d.Unload == "" || d.Load == "" || d.Proc == "":
		return errors.New("driver: systemctl, unload, load and proc must be set")
	case slices.Contains(d.Units, "") || slices.Contains(d.Modules, ""):
		return errors.New("driver: a unit or a module has no name")
	}
	return nil
}

// restoring bounds how long it takes to bring back what was taken away.
const restoring = 3 * time.Minute

// Reload implements [Tools].
func (p *programs) Reload(ctx context.Context, away func(Away) error) (string, error) {
	d := &p.cfg.Driver
	what := Away{Modules: d.loaded(d.Modules)}
	if len(what.Modules) == 0 {
		err := fmt.Errorf("none of the modules %s is loaded", strings.Join(d.Modules, ", "))
		return err.Error(), err
	}
	for _, unit := range d.Units {
		if _, err := command(ctx, d.Systemctl, "is-active", "--quiet", unit); err == nil {
			what.Units = append(what.Units, unit)
		}
	}
	if err := away(what); err != nil {
		err = fmt.Errorf("what is to be stopped cannot be written down, and is not stopped: %w", err)
		return err.Error(), err
	}
	err := d.unload(ctx, what)
	if back := p.Restore(context.WithoutCancel(ctx), what); back != nil {
		err = errors.Join(err, fmt.Errorf("%w: %w", ErrAway, back))
	}
	if err != nil {
		return strings.ReplaceAll(err.Error(), "\n", "; "), err
	}
	said := "loaded anew: " + strings.Join(what.Modules, ", ")
	if len(what.Units) > 0 {
		said += "; stopped meanwhile: " + strings.Join(what.Units, ", ")
	}
	return said, nil
}

// unload stops what holds the driver, and unloads it.
func (d *Driver) unload(ctx context.Context, what Away) error {
	for _, unit := range what.Units {
		if text, err := command(ctx, d.Systemctl, "stop", unit); err != nil {
			return errors.New(text)
		}
	}
	if by := d.holders(); len(by) > 0 {
		return fmt.Errorf("the driver is in use by %s", strings.Join(by, ", "))
	}
	for _, module := range what.Modules {
		if text, err := command(ctx, d.Unload, module); err != nil {
			return errors.New(text)
		}
	}
	return nil
}

// Restore implements [Tools]: what is loaded already, or runs, is not touched.
func (p *programs) Restore(ctx context.Context, what Away) error {
	ctx, done := context.WithTimeout(ctx, restoring)
	defer done()
	d := &p.cfg.Driver
	var errs []error
	try := func(args ...string) {
		if text, err := command(ctx, args...); err != nil {
			errs = append(errs, errors.New(text))
		}
	}
	loaded := d.loaded(what.Modules)
	for _, module := range slices.Backward(what.Modules) {
		if !slices.Contains(loaded, module) {
			try(d.Load, module)
		}
	}
	for _, unit := range slices.Backward(what.Units) { // systemd starts none twice
		try(d.Systemctl, "start", unit)
	}
	return errors.Join(errs...)
}

// loaded returns those of some modules that the kernel has, in their order.
func (d *Driver) loaded(of []string) (out []string) {
	f, err := os.Open(filepath.Join(d.Proc, "modules"))
	if err != nil {
		return nil
	}
	defer func() { _ = f.Close() }()
	have := map[string]bool{}
	for lines := bufio.NewScanner(f); lines.Scan(); {
		name, _, _ := strings.Cut(lines.Text(), " ")
		have[name] = true
	}
	for _, module := range of {
		if have[strings.ReplaceAll(module, "-", "_")] {
			out = append(out, module)
		}
	}
	return out
}

// maxHolders bounds how many processes are named.
const maxHolders = 8

// holders returns the processes that have a device of the driver open, as far as this process may see.
func (d *Driver) holders() (out []string) {
	fds, _ := filepath.Glob(filepath.Join(d.Proc, "[0-9]*", "fd", "*"))
	for _, fd := range fds {
		to, err := os.Readlink(fd)
		if err != nil || !strings.HasPrefix(to, "/dev/nvidia") {
			continue
		}
		dir := filepath.Dir(filepath.Dir(fd))
		name, _ := os.ReadFile(filepath.Join(dir, "comm"))
		who := fmt.Sprintf("%s (%s)", strings.TrimSpace(string(name)), filepath.Base(dir))
		if !slices.Contains(out, who) && len(out) < maxHolders {
			out = append(out, who)
		}
	}
	return out
}
