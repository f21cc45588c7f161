package hot_test

import (
	"testing"
	"time"

	"auspex/internal/store/hot"
	"auspex/schemas/auspexv1"
)

func FuzzAppend(f *testing.F) {
	now := time.Now()
	for _, b := range []*auspexv1.Batch{fan(now, now, 1), gpus(now, 40, 41), {Device: "s1"}} {
		data, err := b.MarshalVT()
		if err != nil {
			f.Fatal(err)
		}
		f.Add(data)
	}
	w := open(f, f.TempDir(), hot.DefaultConfig(), &placer{}, nil)
	defer w.Close()
	f.Fuzz(func(t *testing.T, data []byte) {
		b := &auspexv1.Batch{}
		if b.UnmarshalVT(data) != nil {
			return
		}
		if err := w.Append(t.Context(), b); err != nil {
			t.Fatal(err)
		}
	})
}
