package main

import (
	"maps"
	"slices"

	"auspex/collectors"
	_ "auspex/collectors/all" // registers every collector
)

// Collectors is the section of the configuration that names collectors: a
// collector runs when its key is there.
type Collectors struct{ m map[string]collectors.Config }

// Section implements config.Sections.
func (c *Collectors) Section(name string) (any, error) { //nolint:unparam // the interface asks for it
	if cfg, ok := c.m[name]; ok {
		return cfg, nil
	}
	cfg, err := collectors.Lookup(name)
	if err != nil {
		return nil, err
	}
	if c.m == nil {
		c.m = map[string]collectors.Config{}
	}
	c.m[name] = cfg
	return cfg, nil
}

// Keys implements config.Sections.
func (c *Collectors) Keys() []string { return slices.Sorted(maps.Keys(c.m)) }

// MarshalYAML shows the sections that are set.
func (c Collectors) MarshalYAML() (any, error) { return c.m, nil } //nolint:unparam // the interface asks for it
