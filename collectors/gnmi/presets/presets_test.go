package presets_test

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	gpb "github.com/openconfig/gnmi/proto/gnmi"
	"github.com/openconfig/goyang/pkg/yang"
	"github.com/openconfig/ygot/ygot"

	"auspex/collectors/gnmi/presets"
)

// models are the OpenConfig models that ygot ships as its example: interfaces, platform, transceivers,
// network instances, LLDP, system. The schema is taken out of the source: to compile the structs
// beside it would take minutes.
func models(t *testing.T) *yang.Entry {
	t.Helper()
	dir, err := exec.Command("go", "list", "-m", "-f", "{{.Dir}}", "github.com/openconfig/ygot").Output()
	if err != nil {
		t.Fatalf("go list: %v", err)
	}
	src, err := os.ReadFile(filepath.Join(strings.TrimSpace(string(dir)), "exampleoc", "oc.go"))
	if err != nil {
		t.Fatal(err)
	}
	_, src, _ = bytes.Cut(src, []byte("ySchema = []byte{"))
	src, _, _ = bytes.Cut(src, []byte("}"))
	var zipped []byte
	for field := range bytes.FieldsSeq(src) {
		n, err := strconv.ParseUint(strings.TrimSuffix(string(field), ","), 0, 8)
		if err != nil {
			t.Fatalf("schema of ygot's example: %v", err)
		}
		zipped = append(zipped, byte(n))
	}
	tree, err := ygot.GzipToSchema(zipped)
	if err != nil {
		t.Fatal(err)
	}
	return tree["Device"]
}

// find goes down a schema, and says what is wrong with a path.
func find(root *yang.Entry, path *gpb.Path) (*yang.Entry, string) {
	at := root
	for _, e := range path.GetElem() {
		next := at.Dir[e.GetName()]
		if next == nil {
			return nil, e.GetName() + " is not below " + at.Path()
		}
		at = next
		keys := strings.Fields(at.Key)
		for k := range e.GetKey() {
			if !strings.Contains(" "+at.Key+" ", " "+k+" ") {
				return nil, at.Path() + " has no key " + k
			}
		}
		if at.IsList() && len(e.GetKey()) == 0 {
			return nil, at.Path() + " is a list with the keys " + strings.Join(keys, ", ")
		}
	}
	return at, ""
}

// Each path is in the models, or says which others describe it: a slip of the pen would be a silence
// of every switch.
func TestPathsAreInTheModels(t *testing.T) {
	root := models(t)
	all, err := presets.Load(presets.All())
	if err != nil {
		t.Fatal(err)
	}
	checked := 0
	hold := func(preset, path, schema string, leaf bool) {
		p, err := presets.ParsePath(path)
		if err != nil {
			t.Error(err)
			return
		}
		e, wrong := find(root, p)
		switch {
		case schema != "":
			if wrong == "" {
				t.Errorf("%s: %s is in the models after all: leave schema out", preset, path)
			}
		case wrong != "":
			t.Errorf("%s: %s: %s", preset, path, wrong)
		case leaf && !numeric(e):
			t.Errorf("%s: %s is no number", preset, path)
		default:
			checked++
		}
	}
	for _, p := range all {
		if p.About == "" {
			t.Errorf("%s does not say what it is about", p.Name)
		}
		for _, s := range p.Subscribe {
			hold(p.Name, s.Path, s.Schema, false)
		}
		for _, r := range p.Readings {
			hold(p.Name, r.Path, r.Schema, true)
		}
	}
	if checked < 15 {
		t.Errorf("only %d paths were held against the models", checked)
	}
}

func numeric(e *yang.Entry) bool {
	return e.IsLeaf() && e.Type != nil && (e.Type.Kind >= yang.Yint8 && e.Type.Kind <= yang.Yuint64 || e.Type.Kind == yang.Ydecimal64)
}

// The files beside the package are those that it names.
func TestEachFileIsNamed(t *testing.T) {
	files, err := filepath.Glob("*.yaml")
	if err != nil {
		t.Fatal(err)
	}
	if len(files) != len(presets.All()) {
		t.Errorf("files %v, names %v", files, presets.All())
	}
}

func TestReadingsTakePortAndLabelsOutOfPaths(t *testing.T) {
	all, err := presets.Load(presets.All())
	if err != nil {
		t.Fatal(err)
	}
	for path, want := range map[string][]string{
		"qos/interfaces/interface[interface-id=swp1]/output/queues/queue[name=3]/state/dropped-pkts":           {"auspex_port_queue_dropped_packets_total", "swp1", "queue", "3"},
		"qos/interfaces/interface[interface-id=swp1]/state/switch-priority[priority=5]/counters/in-pause-pkts": {"auspex_port_in_pfc_frames_total", "swp1", "priority", "5"},
		"interfaces/interface[name=swp7]/ethernet/counters/state/out-pfc3-packets":                             {"auspex_port_out_pfc_frames_total", "swp7", "priority", "3"},
		"interfaces/interface[name=Ethernet1/1]/ethernet/state/counters/in-mac-pause-frames":                   {"auspex_port_in_pause_frames_total", "Ethernet1/1"},
		"COUNTERS/Ethernet*/Ethernet68/SAI_PORT_STAT_PFC_3_RX_PKTS":                                            {"auspex_port_in_pfc_frames_total", "Ethernet68", "priority", "3"},
		"COUNTERS/Ethernet*/Queues/Ethernet68:12/SAI_QUEUE_STAT_DROPPED_PACKETS":                               {"auspex_port_queue_dropped_packets_total", "Ethernet68", "queue", "12"},
		"COUNTERS/Ethernet*/Queues/Ethernet68/SAI_QUEUE_STAT_DROPPED_PACKETS":                                  nil,
		"COUNTERS/Ethernet*/Ethernet68/SAI_PORT_STAT_PFC__RX_PKTS":                                             nil,
		"interfaces/interface[name=swp7]/ethernet/counters/state/in-acl-drops":                                 nil,
	} {
		p, err := presets.ParsePath(path)
		if err != nil {
			t.Fatal(err)
		}
		var got []string
		for _, preset := range all {
			for i := range preset.Readings {
				r := &preset.Readings[i]
				port, labels, ok := r.Match(len(p.GetElem()), func(i int) (string, map[string]string) {
					return p.GetElem()[i].GetName(), p.GetElem()[i].GetKey()
				})
				if ok {
					got = append(append(got, r.Metric, port), labels...)
				}
			}
		}
		if d := cmp.Diff(want, got); d != "" {
			t.Errorf("%s: %s", path, d)
		}
	}
}

func TestAPresetIsForTheModelsThatItIsKnownBy(t *testing.T) {
	all, err := presets.Load(presets.All())
	if err != nil {
		t.Fatal(err)
	}
	for model, want := range map[string]string{
		"openconfig-interfaces": "openconfig", "nvidia-if-ethernet-counters-ext": "openconfig cumulus", "arista-qos-augments": "openconfig arista",
		"sonic-db": "openconfig sonic", "": "openconfig",
	} {
		var got []string
		for _, p := range all {
			if p.For([]*gpb.ModelData{{Name: "openconfig-system"}, {Name: model}}) {
				got = append(got, p.Name)
			}
		}
		if strings.Join(got, " ") != want {
			t.Errorf("%s: %v, want %s", model, got, want)
		}
	}
}

func TestWhatIsWrongWithAPresetIsSaid(t *testing.T) {
	for text, want := range map[string]string{
		"subscribe: [{path: a, mode: often}]":             `a: mode is sample, on_change or target_defined, not "often"`,
		"subscribe: [{path: 'a[b]', mode: sample}]":       `"b" is no key`,
		"subscribe: [{path: 'a[b=c', mode: sample}]":      "a key has no ]",
		"subscribe: [{path: a//b, mode: sample}]":         "an element without a name",
		"subscribe: [{path: a, mode: sample, need: now}]": "need is usual or extra",
		"readings: [{path: a/b, metric: m}]":              "{port} in its path",
		"readings: [{path: 'a/{port}'}]":                  "needs a metric",
		"readings: [{path: 'a/{port}{x}', metric: m}]":    "nothing between them",
		"readings: [{path: 'a/{port', metric: m}]":        "without a name and a }",
		"pathes: []": "field pathes not found",
	} {
		if _, err := presets.Parse("mine", []byte(text)); err == nil || !strings.Contains(err.Error(), want) || !strings.Contains(err.Error(), "preset mine") {
			t.Errorf("%s: %v, want %q", text, err, want)
		}
	}
	if _, err := presets.Load([]string{"opencnfig"}); err == nil || !strings.Contains(err.Error(), "there are openconfig, cumulus") {
		t.Error(err)
	}
}
