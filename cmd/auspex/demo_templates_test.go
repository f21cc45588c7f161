package main

import (
	"testing"

	"auspex/deploy/templates"
	"auspex/internal/provision"
)

func TestTheDemoInstallsWithNothingButAServer(t *testing.T) {
	shipped, err := templates.All()
	if err != nil || len(shipped) != 3 {
		t.Fatal(len(shipped), err)
	}
	for i := range shipped {
		s := &shipped[i]
		withDefaults(s.Parameters, "http://127.0.0.1:8000/")
		if err := provision.Check(t.Context(), &s.TemplateBody); err != nil {
			t.Errorf("%s: %v", s.Name, err)
		}
		if required, _ := s.Parameters["required"].([]any); len(required) > 0 {
			t.Errorf("%s: a caller has to give %v", s.Name, required)
		}
	}
}
