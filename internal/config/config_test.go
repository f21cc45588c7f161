package config_test

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"auspex/internal/config"
)

type kafka struct {
	Brokers []string `yaml:"brokers"`
	TLS     bool     `yaml:"tls"`
}

type fan struct {
	Interval time.Duration `yaml:"interval"`
}

func (f *fan) Validate() error {
	if f.Interval <= 0 {
		return errors.New("interval must be positive")
	}
	return nil
}

type plugins struct{ m map[string]any }

func (p *plugins) Section(key string) (any, error) {
	if key != "fan" {
		return nil, fmt.Errorf("unknown collector %q; known are fan", key)
	}
	if p.m == nil {
		p.m = map[string]any{}
	}
	if p.m[key] == nil {
		p.m[key] = &fan{Interval: time.Second}
	}
	return p.m[key], nil
}

func (p *plugins) Keys() []string {
	var out []string
	for k := range p.m {
		out = append(out, k)
	}
	slices.Sort(out)
	return out
}

type root struct {
	Listen     string  `yaml:"listen"`
	Partitions int     `yaml:"partitions"`
	Kafka      kafka   `yaml:"kafka"`
	Collectors plugins `yaml:"collectors"`
}

func file(t *testing.T, text string) string {
	t.Helper()
	f := filepath.Join(t.TempDir(), "auspex.yaml")
	if err := os.WriteFile(f, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return f
}

func TestLaterSourcesOverrideEarlierOnes(t *testing.T) {
	c := root{Listen: ":1", Partitions: 4}
	err := config.Load(config.Source{
		Files:   []string{file(t, "listen: :2\nkafka: {brokers: [a, b]}\ncollectors: {fan: {interval: 3s}}\n"), file(t, "partitions: 8\n")},
		Environ: []string{"HOME=/", "AUSPEX_KAFKA_TLS=true", "AUSPEX_LISTEN=:3"},
		Set:     []string{"listen=:4", "collectors.fan.interval=5s"},
	}, &c)
	if err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff(":4 8 [a b] true", fmt.Sprint(c.Listen, " ", c.Partitions, " ", c.Kafka.Brokers, " ", c.Kafka.TLS)); d != "" {
		t.Error(d)
	}
	if got := c.Collectors.m["fan"].(*fan).Interval; got != 5*time.Second {
		t.Error(got)
	}
}

func TestMistakesNameFileLineKeyAndTheNearestKey(t *testing.T) {
	for _, tt := range []struct{ name, yaml, want string }{
		{"unknown key", "listen: x\nkafka:\n  borkers: [a]\n", `auspex.yaml:3: unknown key "kafka.borkers"; did you mean "brokers"?`},
		{"wrong type", "partitions: many\n", `auspex.yaml:1: partitions: want a whole number, got "many"`},
		{
			"duration", "collectors:\n  fan:\n    interval: soon\n",
			`auspex.yaml:3: collectors.fan.interval: want a duration such as 10s, got "soon"`,
		},
		{"unknown section", "collectors:\n  fun: {}\n", `auspex.yaml:2: collectors.fun: unknown collector "fun"; known are fan`},
		{"twice", "listen: a\nlisten: b\n", `auspex.yaml:2: key "listen" is already set in line 1`},
		{"no mapping", "[1]\n", `auspex.yaml:1: configuration: want a mapping, got "[1]"`},
		{"syntax", "a: b: c\n", `auspex.yaml: `},
		{"validation", "collectors: {fan: {interval: 0s}}\n", `auspex.yaml:1: collectors.fan: interval must be positive`},
	} {
		t.Run(tt.name, func(t *testing.T) {
			var c root
			err := config.Load(config.Source{Files: []string{file(t, tt.yaml)}}, &c)
			if err == nil || !strings.Contains(err.Error(), tt.want) {
				t.Fatalf("got %v\nwant %s", err, tt.want)
			}
		})
	}
}

func TestAllMistakesAreToldAtOnce(t *testing.T) {
	var c root
	err := config.Load(config.Source{Files: []string{file(t, "lisen: x\npartitions: many\n")}, Environ: []string{"AUSPEX_LISTN=x"}}, &c)
	if n := strings.Count(fmt.Sprint(err), "\n"); n != 2 {
		t.Fatalf("want 3 mistakes, got:\n%v", err)
	}
	if !strings.Contains(err.Error(), `unknown variable AUSPEX_LISTN; did you mean "AUSPEX_LISTEN"?`) {
		t.Error(err)
	}
}

func TestAnEmptyFileOrSectionKeepsTheDefaults(t *testing.T) {
	for _, text := range []string{"", "kafka:\n", "# nothing\n"} {
		c := root{Listen: ":1", Kafka: kafka{TLS: true}}
		if err := config.Load(config.Source{Files: []string{file(t, text)}}, &c); err != nil || !c.Kafka.TLS {
			t.Errorf("%q: %v %+v", text, err, c)
		}
	}
}

func FuzzFile(f *testing.F) {
	f.Add("listen: x\ncollectors: {fan: {interval: 3s}}\n")
	f.Add("a: &a [*a]\n")
	f.Fuzz(func(t *testing.T, text string) {
		var c root
		_ = config.Load(config.Source{Files: []string{"-"}, Stdin: strings.NewReader(text)}, &c)
	})
}
