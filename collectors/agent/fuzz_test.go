package agent

import (
	"testing"
	"time"

	gpb "github.com/openconfig/gnmi/proto/gnmi"
	"google.golang.org/protobuf/proto"

	"auspex/collectors"
	"auspex/collectors/collectortest"
	"auspex/schemas"
)

// Whatever an agent writes into its journal is told of its own server, by a source that an agent may be.
func FuzzRecord(f *testing.F) {
	f.Add("kernel", "b1", "3,2,3500000000,-;NVRM: Xid (PCI:0000:1b:00): 79, pid=1, name=x, GPU has fallen off the bus.", uint64(1))
	f.Add("event", "b1", `{"type":"gpu.missing","severity":"error","resource":"other","source":"scheduler","time":"2026-01-01T00:00:00Z"}`, uint64(2))
	f.Add("event", "", `{"type":"workload.devices","severity":"info","attrs":{"pods":"a/b=0"}}`, uint64(3))
	f.Add("fabric-manager", "b1", "+0100 [Jan 01 2026 12:00:00] [ERROR] [tid 1] detected NVSwitch fatal error 20034 on fid 0", uint64(4))
	f.Add("imex", "b1", "+0000 [Jan 01 2026 12:00:00] [WARN] [tid 1] Connection to node 3 lost", uint64(5))
	cfg := Default()
	cfg.TLS.Disabled = true
	f.Fuzz(func(t *testing.T, kind, boot, data string, seq uint64) {
		made, err := cfg.New(at("127.0.0.1:1"), collectortest.Settings())
		if err != nil {
			t.Fatal(err)
		}
		st, err := newState(t.Context(), made.(*subscriber))
		if err != nil {
			t.Fatal(err)
		}
		text := func(name, v string) *gpb.Update {
			return &gpb.Update{Path: &gpb.Path{Elem: []*gpb.PathElem{{Name: name}}}, Val: &gpb.TypedValue{Value: &gpb.TypedValue_StringVal{StringVal: v}}}
		}
		raw, err := proto.Marshal(&gpb.Notification{Update: []*gpb.Update{
			text("kind", kind), text("boot-id", boot), text("data", data),
			{Path: &gpb.Path{Elem: []*gpb.PathElem{{Name: "sequence"}}}, Val: &gpb.TypedValue{Value: &gpb.TypedValue_UintVal{UintVal: seq}}},
		}})
		if err != nil {
			return // no text that a message may hold
		}
		if err := st.record(raw); err != nil {
			t.Error(err)
		}
		rec := collectortest.NewRecorder()
		if err := st.flush(t.Context(), collectors.Emitter(rec)); err != nil {
			t.Fatal(err)
		}
		for _, ev := range rec.Events() {
			if ev.Resource != st.s.device || ev.Source == schemas.SourceScheduler || ev.Source == schemas.SourceAPI || ev.Time.After(collectortest.Now.Add(time.Second)) {
				t.Errorf("%q: %+v", data, ev)
			}
		}
	})
}

// Whatever devices an agent names, what is told of them can be read again.
func FuzzPods(f *testing.F) {
	f.Add("ml", "train-0", "gpu3", "GPU-1")
	f.Add("a,b", "c=1+2", "gpu99999999999", "")
	f.Add("a/b", "", "gpu-1", "\x00")
	f.Fuzz(func(t *testing.T, namespace, pod, gpu, id string) {
		var p pods
		p.put(&leaf{what: device, keys: []string{"c", id, namespace, pod, "r"}}, id)
		p.put(&leaf{what: onGPU, keys: []string{"c", id, namespace, pod, "r"}}, gpu)
		text, pods, gpus, unplaced := p.said()
		if pods+unplaced != 1 || pods != gpus || (text == "") != (pods == 0) {
			t.Errorf("%q: %d pods, %d GPUs, %d unplaced", text, pods, gpus, unplaced)
		}
		p.forget("/pods/device", []string{"c", id, namespace, pod, "r"})
		if len(p.devices) != 0 {
			t.Error("it was not forgotten")
		}
	})
}
