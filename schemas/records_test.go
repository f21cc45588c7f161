package schemas_test

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"auspex/schemas"
)

func TestAnAlertKeepsItsStateAndThatOfItsEvent(t *testing.T) {
	a := schemas.Alert{
		Event: schemas.Event{ID: "e1", Type: "psu.input_lost", State: schemas.StateRaised}, Status: schemas.AlertFiring, Rule: "r",
	}
	b, err := json.Marshal(a)
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{`"state":"firing"`, `"condition":"raised"`, `"type":"psu.input_lost"`} {
		if !strings.Contains(string(b), want) {
			t.Errorf("%s is not in %s", want, b)
		}
	}
	var back schemas.Alert
	if err := json.Unmarshal(b, &back); err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff(a, back); d != "" {
		t.Error(d)
	}
}
