package main

import (
	"fmt"
	"regexp"
	"strings"
	"testing"

	"auspex/control/messages"
	"auspex/internal/reasons"
	"auspex/schemas"
)

var argumentOf = regexp.MustCompile(`\{(\w+)\}`)

// TestWhatControlSaysIsReadInAStep holds that what a workflow takes over of control is told in
// every language.
func TestWhatControlSaysIsReadInAStep(t *testing.T) {
	r := saying()
	var text func(s schemas.Sentence) string
	text = func(s schemas.Sentence) string {
		template := messages.Template(s.ID)
		if template == "" {
			template = reasons.Template(s.ID)
		}
		for name, v := range s.Args {
			if inner, ok := v.(schemas.Sentence); ok {
				v = text(inner)
			}
			template = strings.ReplaceAll(template, "{"+name+"}", fmt.Sprint(v))
		}
		return template
	}
	for _, id := range messages.All() {
		args := messages.Args{}
		for _, m := range argumentOf.FindAllStringSubmatch(messages.Template(id), -1) {
			switch name := m[1]; name {
			case "age":
				args[name] = "1m30s"
			case "saw", "what", "first", "why":
				args[name] = messages.Template(messages.PowerOff)
			case "second":
				args[name] = messages.Template(messages.PowerBack)
			case "n":
				args[name] = 3
			default:
				args[name] = "x-" + name
			}
		}
		detail := messages.Text(messages.New(id, args))
		said := reasons.Text(reasons.Step, reasons.Args{"step": "power_on", "why": reasons.Text(reasons.ActionSo, reasons.Args{"state": schemas.ActionFailed, "why": detail})})
		s := r.Of(said)
		if s == nil || s.ID != reasons.Step {
			t.Errorf("%q is read as %+v", said, s)
			continue
		}
		if again := text(*s); again != said {
			t.Errorf("%q is said anew as %q", said, again)
		}
		if id == messages.PeerError { // the words of a peer
			continue
		}
		outer, _ := s.Args["why"].(schemas.Sentence)
		if inner, _ := outer.Args["why"].(schemas.Sentence); inner.ID != id {
			t.Errorf("%q of %s is read as %+v", detail, id, outer)
		}
	}
}
