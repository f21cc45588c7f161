package gnmi

import (
	"context"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	gpb "github.com/openconfig/gnmi/proto/gnmi"
	fakegnmi "github.com/openconfig/gnmi/testing/fake/gnmi"
	"google.golang.org/protobuf/testing/protocmp"

	"auspex/collectors/collectortest"
)

const mine = `
about: counters of another schema
origin: eos_native
subscribe:
  - {path: "Sysdb/interface[name=*]/counts", mode: sample, heartbeat: 1m, suppress_redundant: true}
  - {path: "Sysdb/interface[name=*]/state", mode: on_change, heartbeat: 2m}
  - {path: "Sysdb/interface[name=*]/any", mode: target_defined}
readings:
  - {path: "Sysdb/interface[name={port}]/counts/drops", metric: auspex_port_queue_dropped_packets_total}
`

func file(t *testing.T, text string) string {
	t.Helper()
	name := filepath.Join(t.TempDir(), "mine.yaml")
	if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return name
}

func sent0(path string, mode gpb.SubscriptionMode, interval, heartbeat time.Duration, suppress bool) *gpb.Subscription {
	p := parsePath(path)
	if strings.HasPrefix(path, "Sysdb") {
		p.Origin = "eos_native"
	}
	return &gpb.Subscription{
		Path: p, Mode: mode, SampleInterval: uint64(interval), HeartbeatInterval: uint64(heartbeat), SuppressRedundant: suppress, //nolint:gosec // positive
	}
}

// All modes of one RPC, origins, heartbeats and what is to be suppressed reach the fake agent of openconfig as they are configured;
// what it tells of another origin is read by the readings of that origin, and by no others.
func TestWhatIsAskedAndOfWhichSchema(t *testing.T) {
	of := func(origin, path, v string) *gpb.SubscribeResponse {
		r := told(path, v)
		r.GetUpdate().Update[0].Path.Origin = origin
		return r
	}
	prefixed := told("drops", "3")
	prefixed.GetUpdate().Prefix = &gpb.Path{Origin: "eos_native", Target: "leaf-1", Elem: parsePath("Sysdb/interface[name=E3]/counts").Elem}
	const octets = "interfaces/interface[name=E1]/state/counters/in-octets"
	agent := fakegnmi.NewClient(fixed(
		of("eos_native", "Sysdb/interface[name=E1]/counts/drops", "1"),
		of("", "Sysdb/interface[name=E2]/counts/drops", "2"),
		prefixed,
		of("eos_native", octets, "4"), of("cli", "interfaces/interface[name=E1]/state/oper-status", `"DOWN"`),
		of("openconfig", octets, "5"), of("openconfig-interfaces", "interfaces/interface[name=E2]/state/counters/in-octets", "6"),
		of("", "interfaces/interface[name=E3]/state/counters/in-octets", "7"),
	))
	agent.Config().DisableEof = true
	cfg, rec := config(), collectortest.NewRecorder()
	cfg.Presets, cfg.HeartbeatInterval, cfg.SuppressRedundant = []string{"openconfig", file(t, mine)}, 5*time.Minute, true
	c, err := cfg.New(served(t, &polled{agent: agent}), collectortest.Settings())
	if err != nil {
		t.Fatal(err)
	}
	stop := again(c, rec)
	got := samples(t, rec, 5)
	if err := stop(); err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff([]string{
		"auspex_port_in_octets_total E1 map[] 5", "auspex_port_in_octets_total E2 map[] 6", "auspex_port_in_octets_total E3 map[] 7",
		"auspex_port_queue_dropped_packets_total E1 map[] 1", "auspex_port_queue_dropped_packets_total E3 map[] 3",
	}, got); d != "" {
		t.Error(d)
	}
	asked := agent.Requests()[0].GetSubscribe()
	if asked.GetMode() != gpb.SubscriptionList_STREAM {
		t.Error(asked.GetMode())
	}
	for _, want := range []*gpb.Subscription{
		sent0("interfaces/interface[name=*]/state/counters", gpb.SubscriptionMode_SAMPLE, cfg.SampleInterval, 5*time.Minute, true),
		sent0("interfaces/interface[name=*]/state/oper-status", gpb.SubscriptionMode_ON_CHANGE, 0, 5*time.Minute, false),
		sent0("Sysdb/interface[name=*]/counts", gpb.SubscriptionMode_SAMPLE, cfg.SampleInterval, time.Minute, true),
		sent0("Sysdb/interface[name=*]/state", gpb.SubscriptionMode_ON_CHANGE, 0, 2*time.Minute, false),
		sent0("Sysdb/interface[name=*]/any", gpb.SubscriptionMode_TARGET_DEFINED, 0, 5*time.Minute, false),
	} {
		i := slices.IndexFunc(asked.GetSubscription(), func(s *gpb.Subscription) bool { return cmp.Equal(s.GetPath(), want.GetPath(), protocmp.Transform()) })
		if i < 0 {
			t.Errorf("%v is not asked", want.GetPath())
			continue
		}
		if d := cmp.Diff(want, asked.GetSubscription()[i], protocmp.Transform()); d != "" {
			t.Error(d)
		}
	}
}

// Who may be silent for a heartbeat is not given up before.
func TestATargetThatSuppressesSamplesMayBeSilent(t *testing.T) {
	s := &subscriber{cfg: *config(), quiet: time.Minute}
	s.cfg.Timeout = 10 * time.Second
	talk := &talk{subscriber: s, ctx: context.Background(), fresh: true, patience: s.cfg.Timeout, ticked: time.Now()}
	if err := talk.due(time.Now()); err != nil || talk.patience != 3*time.Minute {
		t.Errorf("%v, %s", err, talk.patience)
	}
}

func TestWhatIsWrongWithAConfigurationIsSaid(t *testing.T) {
	for want, change := range map[string]func(*Config){
		`mode is stream, poll or once, not "on"`:        func(c *Config) { c.Mode = "on" },
		"suppress_redundant needs a heartbeat_interval": func(c *Config) { c.SuppressRedundant = true },
		"heartbeat_interval must not be negative":       func(c *Config) { c.HeartbeatInterval = -1 },
		"missing.yaml": func(c *Config) { c.Presets = []string{"missing.yaml"} },
		"suppress_redundant is of samples, and needs a heart": func(c *Config) {
			c.Presets = []string{file(t, "subscribe: [{path: a, mode: sample, suppress_redundant: true}]")}
		},
		"heartbeat must not be negative": func(c *Config) { c.Presets = []string{file(t, "subscribe: [{path: a, mode: sample, heartbeat: -1s}]")} },
		"field origen not found":         func(c *Config) { c.Presets = []string{file(t, "origen: cli")} },
	} {
		c := Default()
		change(c)
		if err := c.Validate(); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %s", err, want)
		}
	}
}
