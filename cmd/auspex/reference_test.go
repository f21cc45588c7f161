package main

import (
	"io"
	"testing"

	"auspex/client/cli"
	"auspex/collectors"
	"auspex/internal/config"
	"auspex/internal/docs"
	"auspex/schemas/openapi"
)

func TestReferenceIsWhatTheCodeSays(t *testing.T) {
	src, err := docs.Parse("../..")
	if err != nil {
		t.Fatal(err)
	}
	cfg := DefaultConfig()
	cfg.Complete()
	for _, name := range collectors.Names() {
		if _, err := cfg.Collectors.Section(name); err != nil {
			t.Fatal(err)
		}
	}
	std := IO{Out: io.Discard, Err: io.Discard}
	root := newRoot(std)
	if err := addRemote(root, nil, std); err != nil {
		t.Fatal(err)
	}
	api, err := docs.APIPage(openapi.Document)
	if err != nil {
		t.Fatal(err)
	}
	python, err := docs.PythonClient(openapi.Document)
	if err != nil {
		t.Fatal(err)
	}
	goClient, err := docs.GoClient(openapi.Document)
	if err != nil {
		t.Fatal(err)
	}
	pages := map[string][]byte{
		"cli.md":     docs.CLIPage(root, cli.Group),
		"config.md":  src.ConfigPage("cmd/auspex", "Config", config.Keys(&cfg)),
		"api.md":     api,
		"metrics.md": src.MetricsPage(),
		"agent.md":   docs.AgentPage(),

		"../../client/python/auspex/api.py": python,
		"../../client/api.gen.go":           goClient,
	}
	for name, page := range pages {
		same, err := docs.Same("../../docs/reference/"+name, page)
		if err != nil {
			t.Error(err)
		} else if !same {
			t.Errorf("docs/reference/%s is not what the code says; write it with: go generate ./internal/docs", name)
		}
	}
}
