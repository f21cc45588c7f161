// Package messages holds the sentences of predictions: a message id and its
// English template. The user interface renders the same ids in its own languages; a
// test there holds its table against [All].
package messages

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"auspex/schemas"
)

// Ids of the messages.
const (
	Falls   = "predict.falls"
	Rises   = "predict.rises"
	Below   = "predict.below"
	Above   = "predict.above"
	Averted = "predict.averted"
	Expired = "predict.expired"
)

// ofDefault ends the id of a message about a default limit.
const ofDefault = "_default"

// Of returns the id of a message for a limit from the given source ([schemas.LimitDefault]):
// where the device gives none, the sentence says so.
func Of(id, source string) string {
	if source == schemas.LimitDefault {
		return id + ofDefault
	}
	return id
}

// templates are English; {name} is an argument. {in} is a duration in words;
// beside it the argument seconds has it as a number.
var templates = map[string]string{
	Falls:             "{part} of {server} falls below {limit} {unit} in about {in}.",
	Rises:             "{part} of {server} rises above {limit} {unit} in about {in}.",
	Below:             "{part} of {server} fell below {limit} {unit}.",
	Above:             "{part} of {server} rose above {limit} {unit}.",
	Falls + ofDefault: "{part} of {server} falls below {limit} {unit} (a default: the device gives no limit) in about {in}.",
	Rises + ofDefault: "{part} of {server} rises above {limit} {unit} (a default: the device gives no limit) in about {in}.",
	Below + ofDefault: "{part} of {server} fell below {limit} {unit} (a default: the device gives no limit).",
	Above + ofDefault: "{part} of {server} rose above {limit} {unit} (a default: the device gives no limit).",
	Averted:           "{part} of {server} moved away from {limit} {unit}.",
	Expired:           "{part} of {server} no longer moves towards {limit} {unit}.",
}

// All returns the ids of all messages, sorted.
func All() []string { return slices.Sorted(maps.Keys(templates)) }

// Template returns the English template of a message, or "".
func Template(id string) string { return templates[id] }

// Text renders a message in English. An unknown id gives the id itself, and an
// argument that is missing keeps its braces.
func Text(id string, args map[string]any) string {
	t, ok := templates[id]
	if !ok {
		return id
	}
	for name, v := range args {
		t = strings.ReplaceAll(t, "{"+name+"}", word(v))
	}
	return strings.ReplaceAll(t, "  ", " ")
}

func word(v any) string {
	if f, ok := v.(float64); ok {
		return Number(f)
	}
	return fmt.Sprint(v)
}

// Number writes a number with commas between thousands and at most two decimals.
func Number(f float64) string {
	s := strings.TrimRight(strings.TrimRight(fmt.Sprintf("%.2f", f), "0"), ".")
	whole, frac, _ := strings.Cut(s, ".")
	sign := ""
	if strings.HasPrefix(whole, "-") {
		sign, whole = "-", whole[1:]
	}
	for i := len(whole) - 3; i > 0; i -= 3 {
		whole = whole[:i] + "," + whole[i:]
	}
	if frac != "" {
		whole += "." + frac
	}
	return sign + whole
}
