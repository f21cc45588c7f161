package correlator

import (
	"fmt"
	"strings"

	"auspex/internal/stormgen"
	"auspex/schemas"
)

type (
	shape = stormgen.Shape
	site  = stormgen.Site
)

// shapeNamed is one of the shapes that may be tuned with.
func shapeNamed(name string) shape {
	sh, ok := stormgen.ShapeNamed(name)
	if !ok || sh.Held {
		panic(name + " is no shape to tune with")
	}
	return sh
}

var (
	small = shapeNamed("tiny")
	demo  = shapeNamed("pods")
	hall  = shapeNamed("hall")
	four  = shapeNamed("four-feeds")
	lean  = shapeNamed("lean")
	unfed = shapeNamed("unfed")

	oneFeed = shape{
		Name: "one feed", Racks: 2, Servers: 6, Feeds: 1, PSUs: 1,
		DIMMs: 12, Fans: 4, GPUs: 8, NICs: 1, Leaves: 1, Spines: 1, Row: 2,
	}
	shapes = []shape{small, demo, hall, four, lean, unfed, oneFeed}
)

// causes returns "resource fault" of incidents.
func causes(list []schemas.Incident) (out []string) {
	for _, inc := range list {
		out = append(out, inc.RootCause.Resource+" "+inc.RootCause.Fault)
	}
	return out
}

// verdict is the causes with their confidence, as a failing test prints it.
func verdict(list []schemas.Incident) string {
	var b strings.Builder
	for _, inc := range list {
		fmt.Fprintf(&b, "%s %s %.2f (%d events) %s %v\n", inc.RootCause.Resource, inc.RootCause.Fault, inc.RootCause.Confidence,
			len(inc.Events), inc.Explanation, inc.Alternatives)
	}
	return b.String()
}
