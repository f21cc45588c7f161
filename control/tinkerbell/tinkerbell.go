// Package tinkerbell registers the driver that installs servers through Tinkerbell: it gives
// Tinkerbell the hardware, the rendered template and one workflow of a step, has the server start
// from the network, and follows the workflow to its end. It changes and removes nothing but its own.
package tinkerbell

import (
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/util/validation"

	"auspex/control"
	"auspex/internal/kube"
)

// Name is the driver's key in the configuration.
const Name = "tinkerbell"

func init() {
	control.Register(Name, func() control.Driver { return defaults() })
}

func defaults() *Config {
	return &Config{Namespace: "tink", Deadline: 90 * time.Minute, Boot: bootBMC}
}

// Config is how control reaches Tinkerbell. Without a kubeconfig and outside of a cluster's own it
// does not.
type Config struct {
	kube.Access `yaml:",inline"`

	Namespace string `yaml:"namespace"` // that Tinkerbell watches
	// Deadline is how long a workflow may take from its creation; then it is deleted and the
	// installation has failed.
	Deadline time.Duration `yaml:"deadline"`
	// Boot is who has a server start from the network once its workflow waits: bmc does so through
	// control.bmc, none leaves it to the site.
	Boot string `yaml:"boot"`
	// Rufio turns the power of servers, and sets what they start from next, through the jobs of Rufio in the same namespace, where the
	// inventory names its machine or has no way to their board controllers.
	Rufio bool `yaml:"rufio"`
}

const (
	bootBMC  = "bmc"
	bootNone = "none"
)

func (c *Config) validate() error {
	if errs := validation.IsDNS1123Label(c.Namespace); len(errs) > 0 {
		return fmt.Errorf("namespace: %q is none: %s", c.Namespace, strings.Join(errs, "; "))
	}
	if c.Deadline < time.Second { // which is how exactly it is written down
		return errors.New("deadline must be a second or more")
	}
	if c.Boot != bootBMC && c.Boot != bootNone {
		return fmt.Errorf("boot: want bmc or none, got %q", c.Boot)
	}
	return c.Access.Check()
}

// Remediators implements [control.Driver].
func (c *Config) Remediators(s control.Settings) (map[string]control.Remediator, error) {
	if err := c.validate(); err != nil {
		return nil, err
	}
	if !c.Configured() {
		return nil, nil
	}
	if s.Now == nil {
		s.Now = time.Now
	}
	if s.Log == nil {
		s.Log = slog.New(slog.DiscardHandler)
	}
	i := newInstaller(*c, s)
	return map[string]control.Remediator{kindInstall: i, kindReinstall: i, kindWipe: i, kindNetwork: &network{i: i}}, nil
}
