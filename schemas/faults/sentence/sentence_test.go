package sentence

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

var facts = map[string]any{
	"n": 3, "none": 0, "one": 1, "many": 12345.0, "within": 0.4, "fault": "gpu.hang", "owner": "", "psu_input": true,
	"at_cause": false, "index": 7, "what": Text{"en": "an overload", "zh": "过载"},
}

var types = map[string]Type{
	"n": Number, "none": Number, "one": Number, "many": Number, "within": Number, "fault": Words, "owner": Words, "psu_input": Truth,
	"at_cause": Truth, "index": Name, "what": Phrase,
}

func scope(name string) (Type, bool) { t, ok := types[name]; return t, ok }

func view(name string) any { return facts[name] }

func TestConditions(t *testing.T) {
	for s, want := range map[string]bool{
		"": true, "psu_input": true, "not psu_input": false, "n > 2": true, "n >= 3 and n <= 3": true, "n < 3 or at_cause": false,
		`fault == "gpu.hang"`: true, `owner != ""`: false, "not (at_cause or n == 4) and psu_input": true, "within < 0.5": true,
		"none == 0": true, "at_cause == false": true, "at_cause or psu_input and n > 5": false, "n == one": false,
	} {
		c, err := ParseCondition(s, scope)
		if err != nil {
			t.Errorf("%s: %v", s, err)
		} else if got := c.Holds(view); got != want {
			t.Errorf("%s is %v", s, got)
		}
	}
}

func TestConditionsThatAreWrongSaySo(t *testing.T) {
	for s, want := range map[string]string{
		"n": "not true or false", "parts > 1": `no fact "parts"`, "n > ": "ends too early", "n > fault": "compared", "(n > 1": "does not close",
		`fault > "a"`: "compares numbers", "n and psu_input": "true or false", "not n": "true or false", "n = 3": "not expected",
		"index == 3": "compared", `fault == "a`: "does not end", "n > 1 n": "not expected", "1..2 == n": "no number", "é": "not expected",
		"and": "not expected", strings.Repeat("(", 30) + "psu_input": "deeper", strings.Repeat("x", 400): "longer",
	} {
		if _, err := ParseCondition(s, scope); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: error %v does not say %q", s, err, want)
		}
	}
}

func TestTemplates(t *testing.T) {
	for en, want := range map[string]string{
		"{n:server hangs|servers hang} on it.": "3 servers hang on it.", "{one:server|servers}": "1 server", "{none:server|servers}": "0 servers",
		"{many} s, {within} s": "12,345 s, 0.4 s", "GPU {index}": "GPU 7", "There is {what}.": "There is an overload.", "plain": "plain",
	} {
		c, err := Compile(Text{"en": en, "zh": "{what}"}, scope)
		if err != nil {
			t.Errorf("%s: %v", en, err)
			continue
		}
		if d := cmp.Diff(Text{"en": want, "zh": "过载"}, c.Text(facts)); d != "" {
			t.Errorf("%s: %s", en, d)
		}
	}
}

func TestTemplatesThatAreWrongSaySo(t *testing.T) {
	for en, want := range map[string]string{
		"": "en: no words", "{parts}": "no fact {parts}", "{n": "braces", "n}": "braces", "{n:one}": "one|many", "{psu_input}": "no words",
		"{fault:a|b}": "no number", strings.Repeat("x", 600): "longer", strings.Repeat("{n}", 100): "more than",
	} {
		if _, err := Compile(Text{"en": en, "zh": "x"}, scope); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: error %v does not say %q", en, err, want)
		}
	}
	if _, err := Compile(Text{"en": "x"}, scope); err == nil || !strings.Contains(err.Error(), "zh: no words") {
		t.Errorf("a language is missing: %v", err)
	}
}

func FuzzLanguage(f *testing.F) {
	f.Add(`not (n >= 1.5 and fault == "x") or psu_input`, "{n:one|many} of {what}")
	f.Fuzz(func(t *testing.T, condition, template string) {
		if c, err := ParseCondition(condition, scope); err == nil {
			c.Holds(view)
		}
		if c, err := Compile(Text{"en": template, "zh": template}, scope); err == nil {
			c.Text(facts)
		}
	})
}
