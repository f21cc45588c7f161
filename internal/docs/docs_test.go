package docs

import (
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"auspex/internal/config"
	"auspex/schemas"
)

func parse(t *testing.T, text string) *Source {
	t.Helper()
	f, err := parser.ParseFile(token.NewFileSet(), "x.go", "package x\n"+text, parser.ParseComments|parser.SkipObjectResolution)
	if err != nil {
		t.Fatal(err)
	}
	return &Source{packages: map[string][]*ast.File{"x": {f}}}
}

func TestMetricsAreFoundHoweverTheyAreMade(t *testing.T) {
	s := parse(t, `
func direct() {
	a := prometheus.NewCounterVec(prometheus.CounterOpts{Name: "auspex_x_a_total", Help: "A."}, []string{"topic"})
	b := prometheus.NewGauge(prometheus.GaugeOpts{Name: prefix + "b", Help: "B" + "."})
}
const prefix = "auspex_x_"
func through(reg prometheus.Registerer) {
	counter := func(name, help string, labels ...string) *prometheus.CounterVec {
		return register(reg, prometheus.NewCounterVec(prometheus.CounterOpts{Name: "auspex_x_" + name, Help: help}, labels))
	}
	use(counter("c_total", "C.", "kind", "state"))
}
func other() {
	counter := func(name, help string) {}
	counter("not_a_metric", "N.")
	_ = prometheus.CounterOpts{Name: "someone_elses_total", Help: "S."}
}`)
	want := []Metric{
		{Name: "auspex_x_a_total", Kind: "counter", Help: "A.", Labels: []string{"topic"}},
		{Name: "auspex_x_b", Kind: "gauge", Help: "B."},
		{Name: "auspex_x_c_total", Kind: "counter", Help: "C.", Labels: []string{"kind", "state"}},
	}
	if d := cmp.Diff(want, s.Metrics()); d != "" {
		t.Errorf("metrics (-want +got):\n%s", d)
	}
}

func TestKeysAreDescribedInTheWordsOfTheirFields(t *testing.T) {
	s := parse(t, "type Config struct {\n\t// Every is the period; Most bounds it.\n\tEvery int `yaml:\"every\"`\n\tMost int `yaml:\"at_most\"` // of all\n\tPart `yaml:\",inline\"`\n\tSub Part `yaml:\"sub\"`\n}\n"+
		"type Part struct {\n\tName string `yaml:\"name\"` // of the part\n}\n")
	page := string(s.ConfigPage("x", "Config", []config.Key{
		{Path: "every", Type: "a whole number", Default: "1"},
		{Path: "at_most", Type: "a whole number", Default: "2"},
		{Path: "name", Type: "text", Default: `""`},
		{Path: "sub.name", Type: "text", Default: "x"},
	}))
	for _, want := range []string{
		"| `every` | whole number | `1` | `every` is the period; `at_most` bounds it. |",
		"| `at_most` | whole number | `2` | of all |",
		"| `name` | text |  | of the part |",
		"## sub",
		"| `sub.name` | text | `x` | of the part |",
	} {
		if !strings.Contains(page, want) {
			t.Errorf("page does not say %q:\n%s", want, page)
		}
	}
}

var link = regexp.MustCompile(`\]\(([^)#\s]+)(#[^)]*)?\)`)

func TestLinksOfThePagesLeadSomewhere(t *testing.T) {
	pages, err := filepath.Glob("../../*.md")
	if err != nil {
		t.Fatal(err)
	}
	err = filepath.WalkDir("../../docs", func(p string, _ os.DirEntry, err error) error {
		if strings.HasSuffix(p, ".md") {
			pages = append(pages, p)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range pages {
		b, err := os.ReadFile(p)
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range link.FindAllStringSubmatch(string(b), -1) {
			if strings.Contains(m[1], "://") {
				continue
			}
			if _, err := os.Stat(filepath.Join(filepath.Dir(p), m[1])); err != nil {
				t.Errorf("%s links to %s, which is not there", p, m[1])
			}
		}
	}
}

func TestEveryFieldOfARecordIsInTheFormats(t *testing.T) {
	b, err := os.ReadFile("../../docs/reference/formats.md")
	if err != nil {
		t.Fatal(err)
	}
	page := string(b)
	for _, record := range []any{
		schemas.Event{},
		schemas.Alert{},
		schemas.Incident{},
		schemas.Prediction{},
		schemas.Intent{},
		schemas.Action{},
		schemas.Rail{},
		schemas.DeadLetter{},
	} {
		typ := reflect.TypeOf(record)
		for f := range typ.Fields() {
			name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
			if name != "" && !strings.Contains(page, "`"+name+"`") && !strings.Contains(page, `"`+name+`"`) {
				t.Errorf("formats.md does not speak of %s.%s", typ.Name(), name)
			}
		}
	}
}
