package main

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"go.yaml.in/yaml/v3"

	"auspex/agent"
	"auspex/control/policy"
	"auspex/internal/config"
)

var yamlBlock = regexp.MustCompile("(?s)```yaml\n(.*?)```")

func TestExamplesOfTheDocumentationAreRead(t *testing.T) {
	pages, err := filepath.Glob("../../docs/how-to/*.md")
	if err != nil {
		t.Fatal(err)
	}
	samples, err := filepath.Glob("../../collectors/*/sample.yaml")
	if err != nil {
		t.Fatal(err)
	}
	for _, sample := range samples {
		c := DefaultConfig()
		if err := config.Load(config.Source{Files: []string{sample}}, &c); err != nil {
			t.Errorf("%s: %v", sample, err)
		}
	}
	for _, page := range append(pages, "../../README.md", "../../README.zh-CN.md") {
		b, err := os.ReadFile(page)
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range yamlBlock.FindAllStringSubmatch(string(b), -1) {
			file := filepath.Join(t.TempDir(), strings.TrimSuffix(filepath.Base(page), ".md")+".yaml")
			if err := os.WriteFile(file, []byte(m[1]), 0o600); err != nil {
				t.Fatal(err)
			}
			var keys map[string]any
			if err := yaml.Unmarshal([]byte(m[1]), &keys); err != nil {
				t.Errorf("%s: %v", page, err)
				continue
			}
			if keys["policies"] != nil || keys["budgets"] != nil || keys["rules"] != nil {
				if _, err := policy.Read(file); err != nil {
					t.Errorf("%s: %v", page, err)
				}
				continue
			}
			if filepath.Base(page) == "add-a-fault.md" {
				continue // TestAddAFaultDoesWhatItSays does all that it says
			}
			source, c := config.Source{Files: []string{file}}, DefaultConfig()
			err := config.Load(source, &c)
			if err != nil && filepath.Base(page) == "node-agent.md" { // the agent has a file of its own
				err = config.Load(source, agent.Default())
			}
			if err != nil {
				t.Errorf("%s: %v", page, err)
			}
		}
	}
}
