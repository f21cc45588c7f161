package arch

import (
	"encoding/json"
	"errors"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"regexp"
	"slices"
	"strings"
	"testing"

	"auspex/schemas"
)

const module = "auspex/"

// floors are the storeys of the house: an import leads down, or stays in its folder.
var floors = map[string]int{
	"cmd":   3, // the command line, and the wiring of the stages
	"agent": 2, "collectors": 2, "pipeline": 2, "correlator": 2, "predictor": 2, "control": 2, "allocator": 2, "api": 2,
	"bench": 2, "ui": 2, "client": 2,
	"internal": 1, // foundations
	"deploy":   1, // the templates that are shipped
	// Leaves: what all share, and rule files with what makes dashboards of them.
	"schemas": 0, "dashboards": 0,
}

// sees are the folders that may import others of their floor: bench measures the
// stages, the build of the pages and the client read the sentences that stages say, and the templates that are shipped are
// tried with what renders and judges them.
var sees = []string{"bench", "ui", "client", "deploy"}

// above are packages of a lower floor that may import a folder of a higher one: a simulated
// node agent is the real one on a machine that the simulator plays.
var above = map[string]string{"internal/sim/agent": "agent"}

// testsUp are the packages of the foundations whose tests drive stages.
var testsUp = []string{"internal/e2e", "internal/bus/spool"}

type pkg struct {
	ImportPath, Doc string
	Imports         []string

	TestImports, XTestImports []string
}

func packages(t *testing.T) []pkg {
	t.Helper()
	// `go list` escapes the test cache: the Makefile runs this package with -count=1.
	out, err := exec.Command("go", "list", "-json=ImportPath,Imports,TestImports,XTestImports,Doc", "../../...").Output()
	if err != nil {
		t.Fatal(err)
	}
	var all []pkg
	for dec := json.NewDecoder(strings.NewReader(string(out))); ; {
		var p pkg
		if err := dec.Decode(&p); errors.Is(err, io.EOF) {
			return all
		} else if err != nil {
			t.Fatal(err)
		}
		all = append(all, p)
	}
}

func TestEveryArrowOfTheHouseLeadsDown(t *testing.T) {
	for _, p := range packages(t) {
		path := strings.TrimPrefix(p.ImportPath, module)
		from, _, _ := strings.Cut(path, "/")
		floor, ok := floors[from]
		if !ok {
			t.Errorf("%s stands on no floor of the house", p.ImportPath)
			continue
		}
		tests := slices.Concat(p.TestImports, p.XTestImports)
		if slices.Contains(testsUp, path) {
			tests = nil
		}
		tests = slices.DeleteFunc(tests, sentences)
		if from == "api" { // which is asked by the client that is made from its document
			tests = slices.DeleteFunc(tests, func(imp string) bool { return imp == module+"client" })
		}
		for _, imp := range slices.Concat(p.Imports, tests) {
			imp, ours := strings.CutPrefix(imp, module)
			to, _, _ := strings.Cut(imp, "/")
			switch {
			case !ours || to == from || above[path] == to && to != "":
			case floors[to] > floor:
				t.Errorf("%s imports %s, which stands above it", path, imp)
			case floors[to] == floor && !slices.Contains(sees, from):
				t.Errorf("%s imports %s: stages meet on the bus, in the stores or in cmd/auspex", path, imp)
			}
		}
	}
}

// sentences are packages of texts alone, which tests of the pages show.
func sentences(path string) bool { return strings.HasSuffix(path, "/messages") }

func TestTheProductDoesNotKnowTheSimulator(t *testing.T) {
	const simulator = "internal/sim"
	in := func(path, folder string) bool { return path == folder || strings.HasPrefix(path, folder+"/") }
	for _, p := range packages(t) {
		path := strings.TrimPrefix(p.ImportPath, module)
		for _, imp := range p.Imports {
			imp, ours := strings.CutPrefix(imp, module)
			switch {
			case !ours:
			case in(imp, simulator) && !in(path, simulator) && !in(path, "cmd") && !in(path, "bench"):
				t.Errorf("%s imports %s: the product does not know the simulator", path, imp)
			case in(path, simulator) && (in(imp, "internal/bus") || in(imp, "internal/store")):
				t.Errorf("%s imports %s: the simulator speaks protocols, and knows nothing of the product", path, imp)
			}
		}
	}
}

// TestReadersOfTheBusShareTheirDecoderAndTheirLoop: a reader that decodes by itself
// trusts what a batch says of itself; one that subscribes by itself ends with the
// first failure of the bus.
func TestReadersOfTheBusShareTheirDecoderAndTheirLoop(t *testing.T) {
	only := map[string][]string{
		".UnmarshalVT(": {"internal/bus/wire/", "bench/"},
		// The correlator begins anew from its store when a subscription breaks off, and
		// who follows a repair forgets what it heard.
		".Subscribe(": {"internal/bus/", "bench/", "correlator/correlator.go", "control/life/", "internal/gnmiclient/"},
	}
	sources(t, func(path, text string) {
		for call, where := range only {
			if strings.Contains(text, call) && !slices.ContainsFunc(where, func(p string) bool { return strings.HasPrefix(path, p) }) {
				t.Errorf("%s calls %s: use internal/bus/wire to decode and bus.Follow to read", path, strings.Trim(call, ".("))
			}
		}
	})
}

// TestEventTypesAreConstants: a type that is spelt by hand may be spelt wrongly, and
// then nobody reads it.
func TestEventTypesAreConstants(t *testing.T) {
	types := schemas.EventTypes()
	quoted := regexp.MustCompile(`"([a-z]+\.[a-z_]+)"`)
	sources(t, func(path, text string) {
		if path == "schemas/event_types.go" {
			return
		}
		for _, m := range quoted.FindAllStringSubmatch(text, -1) {
			if slices.Contains(types, m[1]) {
				t.Errorf("%s spells %s: use the constant in schemas", path, m[1])
			}
		}
	})
}

// sources hands out the product's Go files that are written by hand, without tests.
func sources(t *testing.T, f func(path, text string)) {
	t.Helper()
	root := os.DirFS("../..")
	err := fs.WalkDir(root, ".", func(path string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case d.IsDir() && path != "." && (strings.HasPrefix(d.Name(), ".") || d.Name() == "testdata" || d.Name() == "node_modules"):
			return fs.SkipDir
		case d.IsDir() || !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") || strings.HasSuffix(path, ".pb.go"):
			return nil
		}
		b, err := fs.ReadFile(root, path)
		f(path, string(b))
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
}

func TestEveryPackageSaysWhatItIsFor(t *testing.T) {
	for _, p := range packages(t) {
		if p.Doc == "" {
			t.Errorf("%s: no package comment", p.ImportPath)
		}
	}
}
