package kubernetes

import (
	"encoding/json"
	"slices"
	"strconv"
	"strings"
	"time"

	"auspex/schemas"
)

// nodeHeld is what is kept of a node.
type nodeHeld struct {
	server      string
	code, state string
	reason, by  string
	at          time.Time // when it became so, where the API says it; else zero
}

// Codes of nodes, as for nodes of Slurm.
const (
	codeDown  = "DOWN"
	codeDrain = "DRAIN"
	codeReady = "READY"
)

func (f *follower) putNode(n *node) {
	h := n.reduce()
	h.server = f.cfg.server(n)
	if was := f.nodes[n.Meta.Name]; was != nil && was.server == h.server && was.state == h.state && was.code == h.code {
		return // a heartbeat
	} else if was != nil && was.server != h.server {
		for _, w := range f.workloads { // they may run on it
			f.fresh[w] = true
		}
	}
	f.nodes[n.Meta.Name] = h
	f.changed[n.Meta.Name] = true
}

func (f *follower) dropNode(name string) {
	delete(f.nodes, name)
	f.changed[name] = true
}

// server is the server of a node.
func (f *follower) server(node string) string {
	if h := f.nodes[node]; h != nil {
		return h.server
	}
	return node
}

// reduce says in a few words whether a node can be used, and who says so.
func (n *node) reduce() *nodeHeld {
	h := &nodeHeld{code: codeReady}
	words := []string{"Ready"}
	ready := condition{Type: "Ready", Status: "Unknown", Reason: "NodeStatusNeverUpdated"}
	var ill []string
	for _, c := range n.Status.Conditions {
		switch {
		case c.Type == "Ready":
			ready = c
		case bad(&c):
			ill = append(ill, c.Type)
		}
	}
	slices.Sort(ill)
	if n.Spec.Unschedulable {
		words = append(words, "SchedulingDisabled")
		h.code, h.by, h.at = n.drain("f:unschedulable")
	}
	var taints []string
	for _, t := range n.Spec.Taints {
		if strings.HasPrefix(t.Key, "node.kubernetes.io/") { // Kubernetes says with them what the conditions say
			continue
		}
		text := t.Key
		if t.Value != "" {
			text += "=" + t.Value
		}
		taints = append(taints, text+":"+t.Effect)
		if t.Effect == "NoExecute" && h.code == codeReady {
			h.code, h.by, h.at = n.drain("f:taints")
		}
	}
	slices.Sort(taints)
	if ready.Status != "True" {
		words[0] = "NotReady"
		if ready.Status == "Unknown" {
			words[0] = "Unknown" // the node does not answer
		}
		h.code, h.at = codeDown, stamp(ready.Changed)
		h.by, _ = n.manager("f:status", "f:conditions", `k:{"type":"Ready"}`, "f:status")
		h.reason = strings.TrimSuffix(ready.Reason+": "+ready.Message, ": ")
	}
	h.state = strings.Join(slices.Concat(words, ill, taints), "+")
	return h
}

// drain is who keeps pods from a node by a field of its spec, and since when.
func (n *node) drain(field string) (code, by string, at time.Time) {
	by, at = n.manager("f:spec", field)
	return codeDrain, by, at
}

// bad reports whether a condition is trouble: those that are named for what is well are when they are false.
func bad(c *condition) bool {
	for _, well := range []string{"Ready", "Healthy", "Available", "OK"} {
		if strings.HasSuffix(c.Type, well) {
			return c.Status == "False"
		}
	}
	return c.Status == "True"
}

// manager is who last wrote a field, and when.
func (n *node) manager(path ...string) (name string, at time.Time) {
	for _, m := range n.Meta.Managers {
		if t := stamp(m.Time); wrote(m.Fields, path) && (name == "" || t.After(at)) {
			name, at = m.Name, t
		}
	}
	return name, at
}

func wrote(fields json.RawMessage, path []string) bool {
	for _, key := range path {
		var inner map[string]json.RawMessage
		if json.Unmarshal(fields, &inner) != nil {
			return false
		}
		var ok bool
		if fields, ok = inner[key]; !ok {
			return false
		}
	}
	return true
}

// lookNode tells what a node is, if it was not told.
func (f *follower) lookNode(name string, now time.Time) {
	s, h := f.shard(name), f.nodes[name]
	if h == nil {
		if _, known := s.Nodes[name]; known {
			delete(s.Nodes, name)
			s.changed = true
		}
		return
	}
	all := h.code + " " + h.state
	if s.Nodes[name] == all {
		return
	}
	s.Nodes[name], s.changed = all, true
	at := h.at
	if h.code == codeReady || at.IsZero() || at.After(now) || now.Sub(at) > time.Hour {
		at = now
	}
	ev := f.event(h.server, schemas.EventNodeState, h.code, at, now)
	ev.Message = name + " is " + h.state
	ev.SetAttr("state", h.state)
	ev.SetAttr("node", name)
	if h.reason != "" {
		ev.SetAttr("reason", h.reason)
	}
	if h.by != "" {
		ev.SetAttr("by", h.by)
	}
	ev.ID = schemas.EventID(f.device, "node", name, all, strconv.FormatInt(at.UnixNano(), 10))
	f.shard(name).batch.Event(ev)
}
