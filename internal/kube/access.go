package kube

import (
	"errors"
	"fmt"
	"os"
	"regexp"

	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/client-go/tools/clientcmd/api"
)

// Access is where an API server is and who we are there. Without a kubeconfig and outside of a cluster's own there is none.
type Access struct {
	Kubeconfig string `yaml:"kubeconfig"` // a file; may name a program that gets a token
	Context    string `yaml:"context"`    // of the kubeconfig; empty is its current one
	InCluster  bool   `yaml:"in_cluster"` // uses the service account of the pod that Auspex runs in
}

// Configured reports whether the user says where the API is.
func (a *Access) Configured() bool { return a.Kubeconfig != "" || a.InCluster }

// Check says what contradicts itself.
func (a *Access) Check() error {
	if a.InCluster && a.Kubeconfig != "" {
		return errors.New("kubeconfig and in_cluster are both set: name one of them")
	}
	return nil
}

// CheckFiles reads the kubeconfig.
func (a *Access) CheckFiles() error {
	if a.Kubeconfig == "" {
		return nil
	}
	_, err := a.Rest()
	return err
}

// Rest reads the files that say where the API is and who we are.
func (a *Access) Rest() (*rest.Config, error) {
	if a.InCluster {
		cfg, err := rest.InClusterConfig()
		if err != nil {
			return nil, fmt.Errorf("in_cluster: %w", err)
		}
		return cfg, nil
	}
	file, err := a.file()
	if err != nil {
		return nil, err
	}
	cfg, err := file.ClientConfig()
	if err != nil {
		return nil, fmt.Errorf("kubeconfig: %s: %w", a.Kubeconfig, err)
	}
	return cfg, nil
}

// line is all that an error quotes of where a file is wrong: what the parser of a
// kubeconfig says can hold a token.
var line = regexp.MustCompile(`line \d+`)

func (a *Access) file() (clientcmd.ClientConfig, error) {
	b, err := os.ReadFile(a.Kubeconfig)
	if err != nil {
		return nil, fmt.Errorf("kubeconfig: %w", err)
	}
	file, err := clientcmd.Load(b)
	if err != nil {
		return nil, fmt.Errorf("kubeconfig: %s is none that can be read %s", a.Kubeconfig, line.FindString(err.Error()))
	}
	name := a.Context
	if name == "" {
		name = file.CurrentContext
	}
	if _, ok := file.Contexts[name]; !ok {
		return nil, fmt.Errorf("context: %s has no context %q", a.Kubeconfig, name)
	}
	// Paths in the file are relative to it.
	if err := clientcmd.ResolveLocalPaths(withOrigin(file, a.Kubeconfig)); err != nil {
		return nil, fmt.Errorf("kubeconfig: %w", err)
	}
	return clientcmd.NewNonInteractiveClientConfig(*file, name, &clientcmd.ConfigOverrides{}, nil), nil
}

func withOrigin(c *api.Config, file string) *api.Config {
	for _, u := range c.AuthInfos {
		u.LocationOfOrigin = file
	}
	for _, k := range c.Clusters {
		k.LocationOfOrigin = file
	}
	return c
}
