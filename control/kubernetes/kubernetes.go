// Package kubernetes registers the driver that takes servers out of Kubernetes
// and gives them back: cordon, eviction with the disruption budgets respected, and
// uncordon. It undoes only what carries its own mark.
package kubernetes

import (
	"errors"
	"fmt"
	"os"
	"regexp"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/client-go/tools/clientcmd"

	"auspex/control"
	"auspex/schemas"
)

// Name is the driver's key in the configuration.
const Name = "kubernetes"

func init() {
	control.Register(Name, func() control.Driver { return defaults() })
}

func defaults() *Config {
	return &Config{
		Taint: "auspex.io/cordoned", EvictWithin: 9 * time.Minute, StuckAfter: time.Minute,
		Nodes: Nodes{By: byName, Key: "auspex.io/server"},
	}
}

// Config is how control reaches Kubernetes. Without a kubeconfig and outside of a
// cluster's own it does not.
type Config struct {
	Kubeconfig string `yaml:"kubeconfig"` // a file; may name a program that gets a token
	Context    string `yaml:"context"`    // of the kubeconfig; empty is its current one
	InCluster  bool   `yaml:"in_cluster"` // uses the service account of the pod that Auspex runs in
	Nodes      Nodes  `yaml:"nodes"`      // how the node of a server is found
	// Servers are those that are of this cluster, where others are not; without them all are.
	Servers control.Servers `yaml:"servers"`
	// Taint is the key of the taint (effect NoSchedule) that a cordon of ours sets beside unschedulable.
	Taint string `yaml:"taint"`
	// EvictWithin is how long after its cordon a server's pods may take to leave; then
	// the drain has failed, and says which pods and disruption budgets stand in the way.
	EvictWithin time.Duration `yaml:"evict_within"`
	// GracePeriod is how long an evicted pod may take to end; 0 leaves it to the pod.
	GracePeriod time.Duration `yaml:"grace_period"`
	// StuckAfter is how long after its grace period a pod that still ends is told as stuck.
	StuckAfter time.Duration `yaml:"stuck_after"`
	// LeaveNamespaces are those whose pods are left alone, and do not count.
	LeaveNamespaces []string `yaml:"leave_namespaces"`
	// EvictEmptyDir evicts pods with an emptyDir too, whose contents are lost.
	EvictEmptyDir bool `yaml:"evict_empty_dir"`
	// EvictBare evicts pods without a controller too, which nobody starts again.
	EvictBare bool `yaml:"evict_bare"`
}

// Nodes is how the node of a server is found.
type Nodes struct {
	By string `yaml:"by"` // name, label, annotation or provider_id
	// Key is that of the label or annotation.
	Key string `yaml:"key"`
	// Attr is the attribute of the server in the inventory that the node has; empty is the server's id.
	Attr string `yaml:"attr"`
}

const (
	byName       = "name"
	byLabel      = "label"
	byAnnotation = "annotation"
	byProvider   = "provider_id"
)

func (c *Config) validate() error {
	switch c.Nodes.By {
	case byName, byProvider:
	case byLabel, byAnnotation:
		if errs := validation.IsQualifiedName(c.Nodes.Key); len(errs) > 0 {
			return fmt.Errorf("nodes.key: %q is no key of a label: %s", c.Nodes.Key, strings.Join(errs, "; "))
		}
	default:
		return fmt.Errorf("nodes.by: want name, label, annotation or provider_id, got %q", c.Nodes.By)
	}
	if errs := validation.IsQualifiedName(c.Taint); len(errs) > 0 {
		return fmt.Errorf("taint: %q is no key of a taint: %s", c.Taint, strings.Join(errs, "; "))
	}
	if c.EvictWithin <= 0 || c.GracePeriod < 0 || c.StuckAfter < 0 {
		return errors.New("evict_within must be positive, grace_period and stuck_after not negative")
	}
	if c.InCluster && c.Kubeconfig != "" {
		return errors.New("kubeconfig and in_cluster are both set: name one of them")
	}
	return nil
}

// CheckFiles reads the kubeconfig.
func (c *Config) CheckFiles() error {
	if c.Kubeconfig == "" {
		return nil
	}
	_, err := c.Rest()
	return err
}

// Remediators implements [control.Driver].
func (c *Config) Remediators(s control.Settings) (map[string]control.Remediator, error) {
	if err := c.validate(); err != nil {
		return nil, err
	}
	if c.Kubeconfig == "" && !c.InCluster {
		return nil, nil
	}
	if s.Now == nil {
		s.Now = time.Now
	}
	if s.Resource == nil {
		s.Resource = func(string) (schemas.Resource, bool) { return schemas.Resource{}, false }
	}
	k := &cluster{cfg: *c, now: s.Now, resource: s.Resource, again: map[string]time.Time{}}
	return c.Servers.Keep(s, map[string]control.Remediator{"drain": drain{k}, "quarantine": drain{k}, "cordon": cordon{k}, "uncordon": uncordon{k}})
}

// line is all that an error quotes of where a file is wrong: what the parser of a
// kubeconfig says can hold a token.
var line = regexp.MustCompile(`line \d+`)

func (c *Config) kubeconfig() (clientcmd.ClientConfig, error) {
	b, err := os.ReadFile(c.Kubeconfig)
	if err != nil {
		return nil, fmt.Errorf("kubeconfig: %w", err)
	}
	file, err := clientcmd.Load(b)
	if err != nil {
		return nil, fmt.Errorf("kubeconfig: %s is none that can be read %s", c.Kubeconfig, line.FindString(err.Error()))
	}
	name := c.Context
	if name == "" {
		name = file.CurrentContext
	}
	if _, ok := file.Contexts[name]; !ok {
		return nil, fmt.Errorf("context: %s has no context %q", c.Kubeconfig, name)
	}
	// Paths in the file are relative to it.
	if err := clientcmd.ResolveLocalPaths(withOrigin(file, c.Kubeconfig)); err != nil {
		return nil, fmt.Errorf("kubeconfig: %w", err)
	}
	return clientcmd.NewNonInteractiveClientConfig(*file, name, &clientcmd.ConfigOverrides{}, nil), nil
}
