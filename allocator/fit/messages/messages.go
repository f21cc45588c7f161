// Package messages holds the sentences of a choice of servers and GPUs: a message id and its
// English template. The user interface renders the same ids in its own languages.
package messages

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"auspex/schemas"
)

// Ids of why a server was not chosen.
const (
	NotAsked    = "fit.not_asked"
	Excepted    = "fit.excepted"
	Pool        = "fit.pool"
	Labels      = "fit.labels"
	ServerModel = "fit.server_model"
	Model       = "fit.model"
	Memory      = "fit.memory"
	FewGPUs     = "fit.few_gpus"
	Status      = "fit.status"
	Hold        = "fit.hold"
	Bare        = "fit.bare"
	Case        = "fit.case"
	Health      = "fit.health"
	GPUError    = "fit.gpu_error"
	Taken       = "fit.taken"
	Risk        = "fit.risk"
	NoPlace     = "fit.no_place"
	DomainShort = "fit.domain_short"
	Few         = "fit.few"
	TooNear     = "fit.too_near"
	LessDomain  = "fit.less_domain"
	LessSize    = "fit.less_size"
	LessHealth  = "fit.less_health"
	LessRisk    = "fit.less_risk"
	LessFailed  = "fit.less_failed"
	LessPacked  = "fit.less_packed"
	LessName    = "fit.less_name"
)

// Ids of what speaks for a server that was chosen.
const (
	IsHealth     = "fit.is_health"
	IsSafe       = "fit.is_safe"
	IsRisk       = "fit.is_risk"
	IsRiskBeyond = "fit.is_risk_beyond"
	IsFailed     = "fit.is_failed"
	IsNeverOut   = "fit.is_never_failed"
	IsWhole      = "fit.is_whole"
	IsPart       = "fit.is_part"
)

// Ids of domains.
const (
	DomainChosen = "fit.domain_chosen"
	DomainFew    = "fit.domain_few"
	DomainNear   = "fit.domain_near"
	DomainWorse  = "fit.domain_worse"
)

// Ids of what was missing, where nothing fits.
const (
	MissServers = "fit.miss_servers"
	MissGPUs    = "fit.miss_gpus"
	MissIn      = "fit.miss_in"
	MissUnknown = "fit.miss_unknown"
	MissWithout = "fit.miss_without"
	MissRisk    = "fit.miss_risk"
	MissEndless = "fit.miss_search"
)

// templates are English; {name} is an argument.
var templates = map[string]string{
	NotAsked:    "is not one of those asked for",
	Excepted:    "was left out by the request",
	Pool:        "is not in pool {pool}",
	Labels:      "does not have the labels {labels}",
	ServerModel: "is no {model}",
	Model:       "does not have GPUs of model {model}",
	Memory:      "does not have GPUs with {memory_gb} GB of memory",
	FewGPUs:     "has fewer than {gpus} such GPUs",
	Status:      "is not ready, but {status}",
	Hold:        "is held back: {hold}",
	Bare:        "has no system since it was wiped; with a template it would be installed",
	Case:        "is under repair: {case}",
	Health:      "has health {health}, and at least {asked} was asked for",
	GPUError:    "has a GPU in error",
	Taken:       "is taken for a part of that time",
	Risk:        "may fail within the time: {part} with {risk} %, and at most {max} % was asked for",
	NoPlace:     "is in no known {over}",
	DomainShort: "is in a {over} where too few are free",
	Few:         "would do, but too few are free in all",
	TooNear:     "shares a feed or rack with as many of the chosen as may be on one",
	LessDomain:  "is in a {over} that is chosen less well",
	LessSize:    "has a number of free GPUs that suits less well",
	LessHealth:  "is chosen less well: its health is worse",
	LessRisk:    "is chosen less well: it is likelier to fail within the time",
	LessFailed:  "is chosen less well: it failed more recently",
	LessPacked:  "is chosen less well: a larger free block would be broken up",
	LessName:    "is chosen less well by its name only",

	IsHealth:     "health is {health}",
	IsSafe:       "no failure is predicted within the time",
	IsRisk:       "a part fails within the time with {risk} %; the likeliest is {part}",
	IsRiskBeyond: "a part fails with {risk} %, as far as is predicted, which ends before the time does; the likeliest is {part}",
	IsFailed:     "a part failed last on {date}",
	IsNeverOut:   "no failure is known",
	IsWhole:      "the whole server is free",
	IsPart:       "{free} of its GPUs are free, and {given} of them are given",

	DomainChosen: "{over} {name} is chosen: {free} are free, {need} are needed",
	DomainFew:    "{over} {name} has {free} free, {need} are needed",
	DomainNear:   "{over} {name} has {free} free, but too many on one feed or rack",
	DomainWorse:  "{over} {name} has {free} free, and {why}",

	MissServers: "{free} of {need} servers are free",
	MissGPUs:    "{free} of {need} GPUs are free",
	MissIn:      "the most that one {over} has free is {free} of {need}: {name}",
	MissUnknown: "there is no {names}",
	MissWithout: "without {constraint} it would fit",
	MissRisk:    "with a risk of at most {max} % it would fit",
	MissEndless: "the search for servers that are far enough apart was ended; there may be a fit",
}

// All returns the ids of all messages, sorted.
func All() []string { return slices.Sorted(maps.Keys(templates)) }

// Template returns the English template of a message, or "".
func Template(id string) string { return templates[id] }

// Text renders a sentence in English. An unknown id gives the id, and an argument that is missing
// keeps its braces.
func Text(s schemas.Sentence) string {
	t, ok := templates[s.ID]
	if !ok {
		return s.ID
	}
	pairs := make([]string, 0, 2*len(s.Args))
	for name, v := range s.Args {
		if inner, ok := v.(schemas.Sentence); ok {
			v = Text(inner)
		}
		pairs = append(pairs, "{"+name+"}", fmt.Sprint(v))
	}
	return strings.NewReplacer(pairs...).Replace(t)
}
