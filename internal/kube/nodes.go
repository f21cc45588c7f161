package kube

import (
	"fmt"
	"strings"

	"k8s.io/apimachinery/pkg/util/validation"
)

// Nodes is how a node and its server are found by each other.
type Nodes struct {
	By string `yaml:"by"` // name, label, annotation or provider_id
	// Key is that of the label or annotation.
	Key string `yaml:"key"`
	// Attr is the attribute of the server in the inventory that the node has; empty is the server's id.
	Attr string `yaml:"attr"`
}

// What a node has of its server.
const (
	ByName       = "name"
	ByLabel      = "label"
	ByAnnotation = "annotation"
	ByProvider   = "provider_id"
)

// DefaultNodes has nodes whose name is the id of their server.
func DefaultNodes() Nodes { return Nodes{By: ByName, Key: "auspex.io/server"} }

// Check names what makes no sense.
func (n *Nodes) Check() error {
	switch n.By {
	case ByName, ByProvider:
	case ByLabel, ByAnnotation:
		if errs := validation.IsQualifiedName(n.Key); len(errs) > 0 {
			return fmt.Errorf("nodes.key: %q is no key of a label: %s", n.Key, strings.Join(errs, "; "))
		}
	default:
		return fmt.Errorf("nodes.by: want name, label, annotation or provider_id, got %q", n.By)
	}
	return nil
}

// Identity is what a node has of its server, of what is known of the node.
func (n *Nodes) Identity(name, providerID string, labels, annotations map[string]string) (value string, ok bool) {
	switch n.By {
	case ByLabel:
		value, ok = labels[n.Key]
	case ByAnnotation:
		value, ok = annotations[n.Key]
	case ByProvider:
		value, ok = providerID, providerID != ""
	default:
		value, ok = name, true
	}
	return value, ok
}
