package arch

import (
	"encoding/json"
	"errors"
	"io"
	"os/exec"
	"slices"
	"strings"
	"testing"
)

const module = "auspex/"

// stages meet on the bus, in the stores or in internal/app, never in an import.
var stages = []string{"collectors", "pipeline", "correlator", "predictor", "control", "api"}

type pkg struct {
	ImportPath, Doc string
	Imports         []string
}

func packages(t *testing.T) []pkg {
	t.Helper()
	// `go list` escapes the test cache: the Makefile runs this package with -count=1.
	out, err := exec.Command("go", "list", "-json=ImportPath,Imports,Doc", "../../...").Output()
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

// split gives the first element of a path in the module, and the first two.
func split(path string) (first, two string) {
	parts := strings.Split(strings.TrimPrefix(path, module), "/")
	return parts[0], strings.Join(parts[:min(2, len(parts))], "/")
}

func TestPackagesImportOnlyWhatTheArchitectureAllows(t *testing.T) {
	for _, p := range packages(t) {
		from, from2 := split(p.ImportPath)
		for _, imp := range p.Imports {
			if !strings.HasPrefix(imp, module) {
				continue
			}
			to, to2 := split(imp)
			switch {
			case from == "schemas" && to != "schemas":
				t.Errorf("%s imports %s: schemas is the leaf", p.ImportPath, imp)
			case slices.Contains(stages, from) && slices.Contains(stages, to) && from != to:
				t.Errorf("%s imports %s: stages meet only on the bus, in the stores or in internal/app", p.ImportPath, imp)
			case to2 == "internal/app" && from2 != "internal/app" && from2 != "internal/cli" && from2 != "internal/e2e":
				t.Errorf("%s imports %s: only the command line starts the application", p.ImportPath, imp)
			case to2 == "internal/sim" && from2 != "internal/sim" && from2 != "internal/app" && from2 != "internal/e2e":
				t.Errorf("%s imports %s: the product does not know the simulator", p.ImportPath, imp)
			case from2 == "internal/sim" && (slices.Contains(stages, to) || to2 == "internal/bus" || to2 == "internal/store"):
				t.Errorf("%s imports %s: the simulator speaks protocols, not our stages", p.ImportPath, imp)
			case from == "internal" && slices.Contains(stages, to) && from2 != "internal/app" && from2 != "internal/e2e":
				t.Errorf("%s imports %s: shared packages do not know the stages", p.ImportPath, imp)
			}
		}
	}
}

func TestEveryPackageSaysWhatItIsFor(t *testing.T) {
	for _, p := range packages(t) {
		if p.Doc == "" {
			t.Errorf("%s: no package comment", p.ImportPath)
		}
	}
}
