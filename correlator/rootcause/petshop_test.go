package rootcause

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestPetShop holds the ranking against recorded trouble of a real site.
func TestPetShop(t *testing.T) {
	data := filepath.Join("testdata", "petshop")
	if dir := os.Getenv("AUSPEX_PETSHOP"); dir != "" {
		data = dir // the whole data set
	}
	var ours, found tally
	r := &Reading{}
	for _, scenario := range []string{"low_traffic", "high_traffic"} {
		dir := filepath.Join(data, scenario)
		g, err := r.Graph(t.Context(), find(dir, "graph.csv"))
		if err != nil {
			t.Fatal(err)
		}
		normal, err := r.Table(t.Context(), filepath.Join(dir, "noissue"))
		if err != nil {
			t.Fatal(err)
		}
		s, err := NewSite(g, normal, DefaultRoles())
		if err != nil {
			t.Fatal(err)
		}
		issues, err := filepath.Glob(filepath.Join(dir, "train", "*"))
		if err != nil || len(issues) == 0 {
			t.Fatalf("%v, %v", issues, err)
		}
		found = tally{}
		for _, issue := range issues {
			v, ref, right, _ := judge(t, s, issue)
			found.add(v, ref, right)
			ours.add(v, ref, right)
		}
		t.Logf("%-13s %s", scenario, &found)
	}
	if ours.top1 < 15 || ours.top3 < 16 || ours.brier > 0.06*ours.n {
		t.Errorf("%s", &ours)
	}
}

// TestTheRankingNeverReadsTheCause: what an operator found later changes nothing but the
// score.
func TestTheRankingNeverReadsTheCause(t *testing.T) {
	source := filepath.Join("testdata", "petshop", "low_traffic")
	rank := func(cause string) string {
		dir := t.TempDir()
		for _, name := range []string{"graph.csv", "noissue/metrics.csv.gz", "train/issue_0/metrics.csv.gz", "train/issue_0/target.json"} {
			b, err := os.ReadFile(filepath.Join(source, name))
			if err != nil {
				t.Fatal(err)
			}
			if strings.HasSuffix(name, ".json") {
				var doc map[string]any
				if err := json.Unmarshal(b, &doc); err != nil {
					t.Fatal(err)
				}
				doc["root_cause"] = map[string]any{"node": cause}
				doc["metadata"] = cause
				if b, err = json.Marshal(doc); err != nil {
					t.Fatal(err)
				}
			}
			path := filepath.Join(dir, name)
			if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(path, b, 0o600); err != nil {
				t.Fatal(err)
			}
		}
		var out, rest bytes.Buffer
		o := Options{Data: dir, Out: "-", Roles: DefaultRoles(), Score: true, Stdout: &out, Stderr: &rest}
		if err := Backtest(t.Context(), o); err != nil {
			t.Fatal(err)
		}
		return out.String()
	}
	if a, b := rank("PetSite"), rank("S3_AWS::S3"); a != b || a == "" {
		t.Errorf("%s\nis not\n%s", a, b)
	}
}
