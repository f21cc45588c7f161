package gnmi

import (
	gpb "github.com/openconfig/gnmi/proto/gnmi"

	"auspex/collectors/gnmi/presets"
)

func parsePath(s string) *gpb.Path {
	p, err := presets.ParsePath(s)
	if err != nil {
		return &gpb.Path{}
	}
	return p
}
