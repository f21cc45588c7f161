package slurm

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	rest "auspex/internal/slurm"
	"auspex/schemas"
)

// flagMaintenance marks a reservation for maintenance (Slurm, scontrol(1), MAINT).
const flagMaintenance = "MAINT"

// reservation is one of GET /slurm/…/reservations.
type reservation struct {
	Name  string      `json:"name"`
	Nodes string      `json:"node_list"`
	Flags rest.Names  `json:"flags"`
	Start rest.Number `json:"start_time"`
	End   rest.Number `json:"end_time"`
	Users string      `json:"users"`
}

// window is the maintenance window that a reservation is, or false. It is another one when
// its nodes or times change.
func (p *poller) window(r *reservation, now time.Time) (m schemas.Maintenance, ok bool) {
	if !slices.Contains(words(r.Flags), flagMaintenance) {
		return m, false
	}
	nodes, err := rest.Hosts(r.Nodes)
	m = schemas.Maintenance{
		ID:        "slurm-" + schemas.EventID(p.device, strconv.FormatInt(r.Start.N, 10), r.Name, strconv.FormatInt(r.End.N, 10), r.Nodes)[:10],
		Resources: nodes, Work: schemas.WorkMaintenance, Reason: "Slurm reservation " + r.Name, By: cmp.Or(r.Users, "Slurm"),
		Source: schemas.SourceScheduler, Declared: now, From: r.Start.Time(), Until: r.End.Time(),
		GraceSeconds: int(schemas.DefaultGrace.Seconds()),
	}
	if err == nil {
		err = m.Check()
	}
	if err == nil && len(nodes) == 0 {
		err = errors.New("it has no nodes")
	}
	if err != nil { // such as one without an end: it would explain everything for ever
		p.complain("reservation "+r.Name, err.Error()+": it is no maintenance window")
		return m, false
	}
	return m, m.Until.After(now)
}

// reservations reads the maintenance reservations and tells of those that are new, changed
// or gone. A controller that does not list them has none.
func (p *poller) reservations(ctx context.Context, now time.Time) {
	var list []*reservation
	_, err := p.client.List(ctx, "reservations", "reservations", 0, func(raw []byte) {
		r := &reservation{}
		if err := json.Unmarshal(raw, r); err != nil || r.Name == "" {
			p.complain("a reservation without a name", fmt.Sprintf("%.200s", raw))
			return
		}
		list = append(list, r)
	})
	if err != nil { // none beside an error would end windows that are still there
		if text := err.Error(); text != p.unread {
			p.unread = text
			p.log.Warn("maintenance reservations are not read", "error", err)
		}
		return
	}
	p.unread = ""
	listed := map[string]bool{}
	for _, r := range list {
		m, ok := p.window(r, now)
		if !ok {
			continue
		}
		listed[m.ID] = true
		if _, known := p.mem.Windows[m.ID]; known {
			continue
		}
		p.mem.Windows[m.ID], p.changed = m, true
		for _, ev := range m.Events() {
			p.batch.Event(ev)
		}
	}
	for _, id := range slices.Sorted(maps.Keys(p.mem.Windows)) {
		m := p.mem.Windows[id]
		if listed[id] {
			continue
		}
		delete(p.mem.Windows, id)
		p.changed = true
		if !m.Until.After(now) {
			continue
		}
		m.Ended, m.EndedBy = &now, "Slurm"
		for _, ev := range m.Events() {
			if ev.Type == schemas.EventMaintenanceEnded {
				p.batch.Event(ev)
			}
		}
	}
}

// words reads flags that may come as one text, such as "MAINT,IGNORE_JOBS".
func words(list rest.Names) (out []string) {
	for _, s := range list {
		for w := range strings.SplitSeq(s, ",") {
			out = append(out, strings.ToUpper(strings.TrimSpace(w)))
		}
	}
	return out
}
