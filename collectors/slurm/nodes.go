package slurm

import (
	"context"
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/cespare/xxhash/v2"

	rest "auspex/internal/slurm"
	"auspex/schemas"
)

// mark says what a node was when it was last decoded, so that one that is the same is not decoded again.
type mark struct {
	print uint64
	pass  uint32
}

// nodeReading is what was read of nodes.
type nodeReading struct {
	nodes []rest.Node // that are new or have changed
	print []uint64    // of each
	came  bool        // all of the list did
	all   bool        // and what is not in it is gone
	count int

	updated int64
}

// fingerprint returns the name of a node, and a sum over what is told of it.
func fingerprint(raw []byte) (name string, print uint64) {
	var d xxhash.Digest
	d.Reset()
	rest.Members(raw, func(key, value []byte) {
		switch string(key) {
		case "name":
			name = string(rest.Word(value))
		case "state", "state_flags", "reason", "reason_set_by_user", "reason_changed_at", "partitions":
			_, _ = d.Write(key)
			_, _ = d.Write(value)
		}
	})
	return name, d.Sum64()
}

func (p *poller) readNodes(ctx context.Context, now time.Time) (*nodeReading, error) {
	r := &nodeReading{}
	head, err := p.read(ctx, &p.nodeList, "nodes", p.nodeList.due(now, p.cfg.Reconcile), func() { *r = nodeReading{all: true} }, func(raw []byte) {
		r.count++
		name, print := fingerprint(raw)
		if m, ok := p.marks[name]; ok && name != "" {
			p.marks[name] = mark{m.print, p.nodeList.pass}
			if m.print == print {
				return
			}
		}
		var n rest.Node
		if name == "" {
			r.all = false // it may be any of those that seem to be gone
			p.complain("a node without a name", fmt.Sprintf("%.200s", raw))
			return
		}
		if err := json.Unmarshal(raw, &n); err != nil || n.Name == "" {
			p.marks[name] = mark{0, p.nodeList.pass}
			p.complain("node "+name, fmt.Sprintf("%v: %.200s", err, raw))
			return
		}
		r.nodes, r.print = append(r.nodes, n), append(r.print, print)
	})
	if err != nil {
		return nil, err
	}
	if head.Unchanged {
		return &nodeReading{}, nil
	}
	r.came, r.updated = true, head.Updated
	return r, nil
}

// tellNodes tells what was read of nodes.
func (p *poller) tellNodes(r *nodeReading, now time.Time) {
	if r.came {
		p.nodeList.count, p.nodeList.full, p.nodeList.since = r.count, now, r.updated
	}
	for i := range r.nodes {
		p.marks[r.nodes[i].Name] = mark{r.print[i], p.nodeList.pass}
		p.node(&r.nodes[i], now)
	}
	if !r.all || r.count == 0 {
		return
	}
	for name := range p.mem.Nodes {
		if p.marks[name].pass == p.nodeList.pass {
			continue
		}
		delete(p.mem.Nodes, name)
		delete(p.marks, name)
		p.changed = true
		ev := p.event(name, schemas.EventNodeState, stateUnknown, now)
		ev.Message = name + " is not listed any more: it was taken out of Slurm, or has another name there"
		ev.ID = schemas.EventID(p.device, "node", name, stateUnknown, strconv.FormatInt(now.UnixNano(), 10))
		p.batch.Event(ev)
	}
}

func (p *poller) node(n *rest.Node, now time.Time) {
	states := n.States()
	c, all := code(states), strings.Join(states, "+")
	told, reason := all, ""
	if n.Reason != "" && (c == codeDown || c == codeDrain) { // an old reason outlives its state
		reason = n.Reason
		told += " " + n.User + ": " + reason
	}
	if p.mem.Nodes[n.Name] == told {
		return
	}
	p.mem.Nodes[n.Name], p.changed = told, true
	changed := moment(n.Changed)
	if unset(n.Changed) {
		p.complain("node "+n.Name, fmt.Sprintf("its reason is of %d, before the year 2000: the clock of slurmctld was not set", n.Changed.N))
	}
	at := now
	if (c == codeDown || c == codeDrain) && !changed.IsZero() && now.Sub(changed) < p.cfg.Interval+time.Minute && changed.Before(now) {
		at = changed
	}
	ev := p.event(n.Name, schemas.EventNodeState, c, at)
	ev.Message = n.Name + " is " + all
	ev.SetAttr("state", all)
	if len(n.Partitions) > 0 {
		ev.SetAttr("partitions", strings.Join(n.Partitions, ","))
	}
	if reason != "" {
		ev.SetAttr("reason", reason)
		if n.User != "" {
			ev.SetAttr("by", n.User)
		}
		if !changed.IsZero() {
			ev.SetAttr("since", changed.Format(time.RFC3339))
		}
	}
	ev.ID = schemas.EventID(p.device, "node", n.Name, told, strconv.FormatInt(at.UnixNano(), 10))
	p.batch.Event(ev)
}
