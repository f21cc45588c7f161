package main

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	choices "auspex/allocator/fit/messages"
	actions "auspex/control/messages"
	"auspex/internal/cmdb"
	"auspex/internal/reasons"
	"auspex/internal/store/allocations"
	"auspex/internal/store/configs"
	"auspex/internal/store/conflicts"
	"auspex/internal/store/discoveries"
	"auspex/internal/store/entity"
	"auspex/internal/store/estate"
	"auspex/internal/store/handling"
	"auspex/internal/store/hooks"
	"auspex/internal/store/maintenance"
	"auspex/internal/store/people"
	"auspex/internal/store/provisioning"
	"auspex/internal/store/workflows"
	predictions "auspex/predictor/messages"
	"auspex/schemas/faults/propagation"
)

var key = regexp.MustCompile(`'([a-z]+(?:[._-]?[A-Za-z0-9]+)*)': `)

func keys(t *testing.T, language string) []string {
	t.Helper()
	b, err := os.ReadFile(filepath.Join("src", "i18n", language+".js"))
	if err != nil {
		t.Fatal(err)
	}
	var out []string
	for _, m := range key.FindAllStringSubmatch(string(b), -1) {
		out = append(out, m[1])
	}
	slices.Sort(out)
	return out
}

func TestBothLanguagesHaveTheSameTexts(t *testing.T) {
	en, zh := keys(t, "en"), keys(t, "zh")
	if len(en) < 300 {
		t.Fatalf("read %d texts only", len(en))
	}
	if d := cmp.Diff(en, zh); d != "" {
		t.Errorf("en and zh differ (-en +zh):\n%s", d)
	}
	if twice := slices.Compact(slices.Clone(en)); len(twice) != len(en) {
		t.Error("a text is there twice")
	}
}

// TestFaultsAreNotNamedInTheSources holds that a record of a fault needs no build of
// the UI: its words come with each incident.
func TestFaultsAreNotNamedInTheSources(t *testing.T) {
	m := propagation.Default()
	for _, language := range []string{"en", "zh"} {
		for _, k := range keys(t, language) {
			for fault := range m.Records {
				if strings.Contains(k, fault) {
					t.Errorf("%s has the text %s", language, k)
				}
			}
		}
	}
}

func TestEverySentenceOfARecordHasAText(t *testing.T) {
	have := keys(t, "en")
	for _, id := range slices.Concat(predictions.All(), actions.All(), choices.All(), reasons.All()) {
		if !slices.Contains(have, id) {
			t.Errorf("no text for %s: %s%s%s", id, predictions.Template(id), actions.Template(id), choices.Template(id)+reasons.Template(id))
		}
	}
}

// TestTheAuditIsInWords holds that what stores write into the audit is read in the language of the reader.
func TestTheAuditIsInWords(t *testing.T) {
	have := keys(t, "zh")
	for _, verb := range []string{
		entity.Create, entity.Update, entity.Delete, "test", "free", "force", "post", "import", handling.VerbAcknowledge, handling.VerbResolve, handling.VerbComment,
		maintenance.VerbDeclare, maintenance.VerbChange, maintenance.VerbEnd,
	} {
		if !slices.Contains(have, "audit."+verb) {
			t.Errorf("no word for %s", verb)
		}
	}
	for _, kind := range []string{
		allocations.Kind, allocations.KindQuota, allocations.KindReservation, cmdb.AuditKind, configs.KindGPU, configs.KindServer, conflicts.Kind, discoveries.Kind,
		estate.KindGPU, estate.KindPool, estate.KindServer, handling.KindAlert, hooks.Kind, people.KindGrant, people.KindTeam, people.KindUser, provisioning.KindHardware,
		provisioning.KindTemplate, workflows.Kind, "event",
	} {
		if !slices.Contains(have, "do."+kind) {
			t.Errorf("no words for a %s", kind)
		}
	}
}

// TestBuiltFilesAreThoseOfTheSources builds again where the libraries are there.
func TestBuiltFilesAreThoseOfTheSources(t *testing.T) {
	if !installed(".") {
		if os.Getenv("AUSPEX_REQUIRE_NPM") != "" {
			t.Fatal("the libraries of the UI are missing; run npm ci in ui/")
		}
		t.Skip("the libraries of the UI are not installed; the built files are taken as they are")
	}
	out := filepath.Join(t.TempDir(), "dist")
	if err := build(".", out); err != nil {
		t.Fatal(err)
	}
	committed := filepath.Join("..", "api", "ui", "dist")
	was, is := filesOf(t, committed), filesOf(t, out)
	for name, want := range was {
		if got, ok := is[name]; !ok {
			t.Errorf("%s is committed and not built", name)
		} else if got != want {
			t.Errorf("%s is not what the sources give; run make ui", name)
		}
	}
	for name := range is {
		if _, ok := was[name]; !ok {
			t.Errorf("%s is built and not committed; run make ui", name)
		}
	}
}

// filesOf reads a folder and those in it.
func filesOf(t *testing.T, folder string) map[string]string {
	t.Helper()
	out := make(map[string]string)
	err := fs.WalkDir(os.DirFS(folder), ".", func(name string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		b, err := os.ReadFile(filepath.Join(folder, name))
		out[name] = string(b)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return out
}

func TestBuiltFilesAreWithinTheBudget(t *testing.T) {
	if err := weigh(filepath.Join("..", "api", "ui", "dist")); err != nil {
		t.Error(err)
	}
}

func TestBuildNamesWhatIsWrong(t *testing.T) {
	err := build(filepath.Join(t.TempDir(), "none"), filepath.Join(t.TempDir(), "dist"))
	if err == nil || !strings.Contains(err.Error(), "main.js") {
		t.Errorf("error: %v", err)
	}
}
