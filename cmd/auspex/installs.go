package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"time"

	"auspex/deploy/templates"
	"auspex/internal/provision"
	"auspex/internal/run"
	"auspex/internal/sim"
	"auspex/internal/sim/child"
	"auspex/internal/store/entity"
	"auspex/internal/store/estate"
	"auspex/internal/store/provisioning"
	"auspex/schemas"
)

// installedWith is the template that servers of the demo are pinned to.
const installedWith = "ubuntu"

// images reads what the simulated image store has.
func images(f *child.Fleet) (at sim.Images, err error) {
	b, err := os.ReadFile(f.Path(sim.ImagesFile))
	if err == nil {
		err = json.Unmarshal(b, &at)
	}
	if err != nil {
		return at, fmt.Errorf("read the simulator's images: %w", err)
	}
	return at, nil
}

// installs stores the shipped templates in the demo, with what the simulated fleet can be installed from as
// defaults of their parameters, and pins its servers to one of them. A second run with the same data finds
// them.
func (s *stack) installs(fleet *child.Fleet) run.Component {
	return run.Func("installs", func(ctx context.Context, ready func()) error {
		ready()
		if err := s.install(ctx, fleet); err != nil && ctx.Err() == nil {
			s.log.Warn("the demo goes without templates of installations", "error", err)
		}
		<-ctx.Done()
		return nil
	})
}

func (s *stack) install(ctx context.Context, fleet *child.Fleet) error {
	at, err := images(fleet)
	if err != nil {
		return err
	}
	shipped, err := templates.All()
	if err != nil {
		return err
	}
	store := provisioning.New(s.db)
	for i := range shipped {
		t := &shipped[i]
		withDefaults(t.Parameters, at.URL)
		if err := provision.Check(ctx, &t.TemplateBody); err != nil {
			return fmt.Errorf("template %s: %w", t.Name, err)
		}
		is, err := store.Template(ctx, t.Name)
		switch {
		case errors.Is(err, entity.ErrNone):
			_, err = store.Create(ctx, "demo", t.Name, t.TemplateBody)
		case err == nil && is.VersionBy == "demo": // the image store may have moved
			_, err = store.Update(ctx, "demo", t.Name, is.Revision, func(to *schemas.Template) { to.TemplateBody = t.TemplateBody })
		}
		if err != nil {
			return fmt.Errorf("store template %s: %w", t.Name, err)
		}
	}
	return s.pin(ctx, store)
}

// withDefaults gives what a shipped template has to be given values that the simulated fleet works with: their
// examples, and what is to be fetched from its image store.
func withDefaults(parameters map[string]any, from string) {
	properties, _ := parameters["properties"].(map[string]any)
	required, _ := parameters["required"].([]any)
	for name, p := range properties {
		p, _ := p.(map[string]any)
		if p == nil {
			continue
		}
		if examples, _ := p["examples"].([]any); len(examples) > 0 && p["default"] == nil && slices.Contains(required, any(name)) {
			p["default"] = examples[0]
		}
		switch name {
		case "image_url":
			p["default"] = from + sim.FlatcarImage
			if properties["metadata_url"] != nil {
				p["default"] = from + sim.UbuntuImage
			}
		case "factory", "metadata_url":
			p["default"] = strings.TrimSuffix(from, "/")
		}
	}
	parameters["required"] = slices.DeleteFunc(required, func(name any) bool {
		p, _ := properties[fmt.Sprint(name)].(map[string]any)
		return p["default"] != nil
	})
}

// pin has the servers of the demo installed with a template, once the inventory is known.
func (s *stack) pin(ctx context.Context, store *provisioning.Store) error {
	var servers []schemas.Server
	for len(servers) == 0 {
		var err error
		if servers, _, err = estate.New(s.db).Servers(ctx, estate.Filter{Limit: 10_000}); err != nil {
			return err
		}
		if len(servers) == 0 {
			if err := run.Sleep(ctx, time.Second); err != nil {
				return err
			}
		}
	}
	ids := make([]string, len(servers))
	for i := range servers {
		ids[i] = servers[i].ID
	}
	said, err := store.Overrides(ctx, ids)
	if err != nil {
		return err
	}
	for _, id := range ids {
		if _, ok := said[id]; ok { // it is pinned, or somebody has said something else
			continue
		}
		if _, err := store.Override(ctx, "demo", id, 0, schemas.HardwareOverrides{Template: installedWith}); err != nil {
			return err
		}
	}
	return nil
}
