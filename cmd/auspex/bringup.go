package main

import (
	"context"
	"errors"
	"net"
	"net/url"
	"strings"
	"time"

	"auspex/allocator/steps"
	"auspex/collectors"
	"auspex/internal/enrol"
	"auspex/internal/reasons"
	"auspex/internal/store/configs"
	"auspex/internal/store/conflicts"
	"auspex/internal/store/discoveries"
	"auspex/internal/store/entity"
	"auspex/internal/store/estate"
	"auspex/internal/store/provisioning"
	"auspex/schemas"
)

// inventories holds what the inventory has of servers against what was seen of them.
func (s *stack) inventories() steps.Inventories {
	v := steps.Inventories{
		Parts: s.below, Differences: s.differences,
		Board: func(server string) bool {
			r, _ := s.inv.Snapshot().Resource(server)
			return r.Attrs.Get(schemas.AttrRedfishURL) != "" || r.Attrs.Get(schemas.AttrIPMIIP) != ""
		},
	}
	if s.hot != nil {
		v.Newest = func(ctx context.Context, server string, by schemas.View) (map[string]time.Time, error) {
			return s.hot.Newest(ctx, server, time.Now().Add(-readWithin), func(collector string) bool { return collectors.ViewOf(collector) == by })
		}
	}
	return v
}

// differences says in what a server differs from what was seen of it: what is open of conflicts, of what its node agent proposes, and
// of what a sweep has found of it last.
func (s *stack) differences(ctx context.Context, server string, installs bool) (out []string, err error) {
	say := func(id string, args reasons.Args) { out = append(out, reasons.Text(id, args)) }
	for f := (conflicts.Filter{Status: schemas.ConflictOpen, Resource: server, Limit: 1000}); ; {
		page, next, err := conflicts.New(s.db).List(ctx, f)
		if err != nil {
			return nil, err
		}
		for _, c := range page {
			say(reasons.DiffersIn, reasons.Args{"field": c.Field, "part": c.Resource, "now": or(c.Left.Value), "source": c.Right.Source, "words": or(c.Right.Value)})
		}
		if f.After = next; next == "" {
			break
		}
	}
	proposed, err := enrol.New(s.db).About(ctx, server)
	if err != nil {
		return nil, err
	}
	for i := range proposed {
		for _, d := range proposed[i].Differences {
			if d.Verb == enrol.Added && d.Attr == "" {
				say(reasons.NotThere, reasons.Args{"source": enrol.Source, "words": d.Resource})
				continue
			}
			say(reasons.DiffersIn, reasons.Args{"field": or(d.Attr), "part": d.Resource, "now": or(d.Inventory), "source": enrol.Source, "words": or(d.Agent)})
		}
	}
	found, err := s.found(ctx, server)
	if err != nil {
		return nil, err
	}
	if n, has := len(found.GPUs), len(s.partsOf(server, schemas.KindGPU)); n > 0 && n != has {
		say(reasons.CountsAre, reasons.Args{"source": found.Protocol, "n": n, "others": has})
	}
	for _, n := range found.NICs {
		if n.MAC == "" {
			continue
		}
		if id, ok := s.inv.Snapshot().ByIdentity("", n.MAC); !ok || s.inv.Snapshot().Server(id) != server {
			say(reasons.NotThere, reasons.Args{"source": found.Protocol, "words": n.MAC + " (" + n.Name + ")"})
		}
	}
	if !installs {
		return out, nil
	}
	record, err := s.hardware().Hardware(ctx, server)
	if err != nil {
		return nil, err
	}
	var lacks []string
	for _, fact := range record.Lacks {
		if !strings.HasPrefix(fact, "bmc_") { // which control reaches by the inventory
			lacks = append(lacks, fact)
		}
	}
	if len(lacks) > 0 {
		say(reasons.Lacks, reasons.Args{"words": strings.Join(lacks, ", ")})
	}
	return out, nil
}

// keptBIOS are the attributes that a server, by its id, is kept at, as set_bios takes them.
func (s *stack) keptBIOS(ctx context.Context, server string) (map[string]string, error) {
	c, err := configs.New(s.db).Server(ctx, server)
	if errors.Is(err, entity.ErrNone) || err == nil && len(c.BIOS) == 0 {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	c.RAID, c.Network = nil, nil // which no step of this sets
	_, with, err := configs.ServerSettings(&c)
	return with, err
}

// or is a word for a value that is not there.
func or(value string) string {
	if value == "" {
		return "nothing"
	}
	return value
}

// found is what a sweep has found last behind the board controller of a server; the zero find is nothing.
func (s *stack) found(ctx context.Context, server string) (schemas.Find, error) {
	r, _ := s.inv.Snapshot().Resource(server)
	u, err := url.Parse(r.Attrs.Get(schemas.AttrRedfishURL))
	if err != nil || u.Host == "" {
		return schemas.Find{}, nil //nolint:nilerr // it is no address to have found something at
	}
	at := u.Host
	if u.Port() == "" {
		at = net.JoinHostPort(u.Hostname(), "443")
	}
	f, err := discoveries.New(s.db).Seen(ctx, at)
	if errors.Is(err, entity.ErrNone) {
		return schemas.Find{}, nil
	}
	return f, err
}

// hardware has the hardware records of servers, and the templates that they are installed with.
func (s *stack) hardware() installs {
	return installs{s.inv, estate.New(s.db), provisioning.New(s.db)}
}
