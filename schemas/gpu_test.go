package schemas

import (
	"strings"
	"testing"

	"google.golang.org/protobuf/reflect/protoreflect"

	"auspex/schemas/auspexv1"
)

func TestEveryGPUColumnOfTheWireFormatHasOneMetric(t *testing.T) {
	fields := (&auspexv1.GpuColumns{}).ProtoReflect().Descriptor().Fields()
	want := map[string]bool{}
	for i := range fields.Len() {
		if f := fields.Get(i); f.Number() >= 10 {
			want[string(f.Name())] = true
		}
	}
	names := map[string]bool{}
	for i, m := range GPUMetrics {
		if !want[m.Column] {
			t.Errorf("column %s is not on the wire, or there twice", m.Column)
		}
		delete(want, m.Column)
		if names[m.Name] || !strings.HasPrefix(m.Name, "DCGM_FI_") {
			t.Errorf("name %s", m.Name)
		}
		names[m.Name] = true
		g := &auspexv1.GpuColumns{}
		*m.Get(g) = []float64{float64(i)}
		r := g.ProtoReflect()
		if l := r.Get(r.Descriptor().Fields().ByName(protoreflect.Name(m.Column))).List(); l.Len() != 1 || l.Get(0).Float() != float64(i) {
			t.Errorf("%s reads another column than %s", m.Name, m.Column)
		}
	}
	for c := range want {
		t.Errorf("column %s has no metric", c)
	}
}
