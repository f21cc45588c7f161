package main

import (
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"auspex/allocator"
	"auspex/api"
	"auspex/api/instance"
	"auspex/collectors"
	"auspex/control"
	"auspex/control/keeper"
	"auspex/correlator"
	"auspex/correlator/learn"
	"auspex/correlator/notify"
	"auspex/internal/bus/jetstream"
	"auspex/internal/bus/kafka"
	"auspex/internal/bus/spool"
	"auspex/internal/cmdb"
	"auspex/internal/discover"
	"auspex/internal/enrol"
	"auspex/internal/store/clickhouse"
	"auspex/internal/store/embedded"
	"auspex/internal/store/hot"
	"auspex/internal/telemetry"
	"auspex/internal/trust"
	"auspex/internal/tunnel"
	"auspex/pipeline/detect"
	"auspex/pipeline/sink"
	"auspex/predictor"
)

// Roles of a process. One process runs all of them by default.
const (
	RoleCollect   = "collect"
	RoleProcess   = "process"
	RoleCorrelate = "correlate"
	RolePredict   = "predict"
	RoleControl   = "control"
	RoleAllocate  = "allocate"
	RoleAPI       = "api"
)

// Roles lists every role in the order of the data flow.
func Roles() []string {
	return []string{RoleCollect, RoleProcess, RoleCorrelate, RolePredict, RoleControl, RoleAllocate, RoleAPI}
}

// Config is the configuration of `auspex run`.
type Config struct {
	Data    string   `yaml:"data"`    // folder of everything that this process keeps
	Roles   []string `yaml:"roles"`   // empty is all
	Site    string   `yaml:"site"`    // the name of this place; ids of resources follow from it
	Secrets string   `yaml:"secrets"` // file of credentials, mode 0600

	// Trust is whom all trust who reach the same kind of device; tls of a collector or
	// of control goes before it, and config check warns where they differ.
	Trust trust.Peers `yaml:"trust"`

	Log telemetry.LogConfig `yaml:"log"`
	// Metrics is where a process without the role api serves its metrics and health.
	Metrics   telemetry.ServeConfig `yaml:"metrics"`
	Inventory InventoryConfig       `yaml:"inventory"`
	Bus       BusConfig             `yaml:"bus"`
	Store     StoreConfig           `yaml:"store"`

	// Tunnel is where node agents dial in that nobody may reach, for the roles collect and
	// control: servers whose agent_address is tunnel.
	Tunnel tunnel.Config `yaml:"tunnel"`

	// Discovery is where sweeps for board controllers may go: the role api asks for them, the
	// role collect does them.
	Discovery discover.Config `yaml:"discovery"`

	Collect    CollectConfig     `yaml:"collect"`
	Collectors Collectors        `yaml:"collectors"`
	Detect     DetectConfig      `yaml:"detect"`
	Correlator correlator.Config `yaml:"correlator"`
	Learn      learn.Config      `yaml:"learn"`
	Control    ControlConfig     `yaml:"control"`
	Allocator  allocator.Config  `yaml:"allocator"`
	Predictor  predictor.Config  `yaml:"predictor"`
	Notify     notify.Config     `yaml:"notify"`
	API        api.Config        `yaml:"api"`

	// InstanceMetadata is where servers ask what they are and what they are to become, in
	// processes of the role api.
	InstanceMetadata instance.Config `yaml:"instance_metadata"`
}

// InventoryConfig says what there is to watch.
type InventoryConfig struct {
	File        string `yaml:"file"` // topology.json, imported at start; empty uses what was imported before
	cmdb.Config `yaml:",inline"`
}

// BusConfig picks the bus.
type BusConfig struct {
	Type      string           `yaml:"type"` // jetstream (in this process) or kafka
	JetStream jetstream.Config `yaml:"jetstream"`
	Kafka     kafka.Config     `yaml:"kafka"`
}

// Chosen implements config.Chooser.
func (c *BusConfig) Chosen(key string) bool { return key == c.Type }

// Validate names the key at fault.
func (c *BusConfig) Validate() error {
	if c.Type != "jetstream" && c.Type != "kafka" {
		return fmt.Errorf("type: want jetstream or kafka, got %q", c.Type)
	}
	return nil
}

// StoreConfig says where history and state are kept.
type StoreConfig struct {
	// SQL is the relational store: the path of a SQLite file, or a PostgreSQL DSN.
	SQL string `yaml:"sql"`
	// ClickHouse is the history: embedded, off, or the DSN of a server.
	ClickHouse string            `yaml:"clickhouse"`
	Fetch      bool              `yaml:"fetch"` // the embedded engine, once, with npm
	Engine     embedded.Config   `yaml:"engine"`
	History    clickhouse.Config `yaml:"history"`
	Sink       sink.Config       `yaml:"sink"`
	HotWindow  hot.Config        `yaml:"hot_window"`
}

// CollectConfig bounds the collectors.
type CollectConfig struct {
	collectors.RunnerConfig `yaml:",inline"`
	// Member names this process among those that share the devices, over one PostgreSQL; "" is its host and data folder.
	// LeaseTTL is after what silence the others read its devices.
	Member   string        `yaml:"member"`
	LeaseTTL time.Duration `yaml:"lease_ttl"`
	// Spool keeps events on the disk while the bus is away.
	Spool spool.Config `yaml:"spool"`
	// Enrol is how often what node agents say of their machines is held against the inventory.
	Enrol enrol.Config `yaml:"enrol"`
}

// Validate names the key at fault. It hides the embedded method, which would
// validate half of it.
func (c *CollectConfig) Validate() error {
	if err := c.RunnerConfig.Validate(); err != nil {
		return err
	}
	if c.LeaseTTL < time.Second {
		return errors.New("lease_ttl must be 1s at least")
	}
	if err := c.Enrol.Validate(); err != nil {
		return fmt.Errorf("enrol: %w", err)
	}
	return c.Spool.Validate()
}

// ControlConfig is control and what it acts through.
type ControlConfig struct {
	control.Config `yaml:",inline"`
	Drivers        control.Drivers `yaml:",inline"`
	// Configuration is how configurations of servers and GPUs are kept in force.
	Configuration keeper.Config `yaml:"configuration"`
}

// DefaultConfig observes everything and acts on nothing.
func DefaultConfig() Config {
	return Config{
		Data:      ".auspex",
		Log:       telemetry.LogConfig{Level: "warn", Format: "text"},
		Metrics:   telemetry.DefaultServeConfig(),
		Inventory: InventoryConfig{Config: cmdb.DefaultConfig()},
		Bus:       BusConfig{Type: "jetstream", JetStream: jetstream.DefaultConfig(), Kafka: kafka.DefaultConfig()},
		Store: StoreConfig{
			ClickHouse: clickHouseEmbedded, Fetch: true, Engine: embedded.DefaultConfig(), History: clickhouse.DefaultConfig(),
			Sink: sink.DefaultConfig(), HotWindow: hot.DefaultConfig(),
		},
		Tunnel:     tunnel.DefaultConfig(),
		Discovery:  discover.DefaultConfig(),
		Collect:    CollectConfig{RunnerConfig: collectors.DefaultRunnerConfig(), LeaseTTL: 15 * time.Second, Spool: spool.DefaultConfig(), Enrol: enrol.DefaultConfig()},
		Detect:     DetectConfig{Config: detect.DefaultConfig(), Rules: detect.DefaultRulesConfig()},
		Correlator: correlator.DefaultConfig(),
		Learn:      learn.DefaultConfig(),
		Control:    ControlConfig{Config: control.DefaultConfig(), Drivers: control.DefaultDrivers(), Configuration: keeper.DefaultConfig()},
		Allocator:  allocator.DefaultConfig(),
		Notify:     notify.DefaultConfig(),
		Predictor:  predictor.DefaultConfig(),
		API:        api.DefaultConfig(),

		InstanceMetadata: instance.DefaultConfig(),
	}
}

// Complete derives what was not set from the data folder.
func (c *Config) Complete() {
	set := func(p *string, name string) {
		if *p == "" {
			*p = filepath.Join(c.Data, name)
		}
	}
	set(&c.Bus.JetStream.Dir, "bus")
	set(&c.Store.SQL, "auspex.db")
	c.Inventory.Site = c.Site
	if c.Correlator.Site == "" {
		c.Correlator.Site = c.Site
	}
	c.Store.Engine.Dir = filepath.Join(c.Data, "clickhouse")
	if len(c.Roles) == 0 {
		c.Roles = Roles()
	}
	c.Trust.Share(c.clients())
}

// clients are all parts that reach devices by TLS settings of their own.
func (c *Config) clients() (out []trust.Use) {
	for _, name := range c.Collectors.Keys() {
		if u, ok := c.Collectors.m[name].(trust.Client); ok {
			out = append(out, trust.Use{Key: "collectors." + name, Client: u})
		}
	}
	for _, name := range c.Control.Drivers.Keys() {
		if u, ok := c.Control.Drivers[name].(trust.Client); ok {
			out = append(out, trust.Use{Key: "control." + name, Client: u})
		}
	}
	return out
}

// Validate names the key at fault.
func (c *Config) Validate() error {
	for _, r := range c.Roles {
		if !slices.Contains(Roles(), r) {
			return fmt.Errorf("roles: unknown role %q; known are %s", r, strings.Join(Roles(), ", "))
		}
	}
	if c.Data == "" {
		return errors.New("data: a folder is required")
	}
	return nil
}

func (c *Config) has(role string) bool { return slices.Contains(c.Roles, role) }
