package kubernetes

import (
	"context"
	"encoding/json"
	"fmt"
	"strconv"
	"testing"

	"auspex/collectors/collectortest"
)

// ballast is what a pod has that is not read, as large as on a real cluster: environment, volumes, managedFields.
func ballast(o object) {
	env := []any{}
	for i := range 40 {
		env = append(env, object{"name": fmt.Sprint("NCCL_SETTING_", i), "value": "some value of a setting"})
	}
	c := o["spec"].(object)["containers"].([]any)[0].(object)
	c["env"], c["image"] = env, "registry.example.com/team/image:tag"
	fields := object{}
	for i := range 60 {
		fields[fmt.Sprintf(`k:{"name":"NCCL_SETTING_%d"}`, i)] = object{".": object{}, "f:name": object{}, "f:value": object{}}
	}
	metadataOf(o)["managedFields"] = []any{object{"manager": "kube-controller-manager", "fieldsV1": object{"f:spec": fields}}}
}

func rawPod(b *testing.B, i int) json.RawMessage {
	b.Helper()
	o := podOf(fmt.Sprint("train-", i), fmt.Sprintf("%08d-0000", i), fmt.Sprint("n", i%10000), "Running", ballast)
	metadataOf(o)["resourceVersion"] = strconv.Itoa(i + 1)
	metadataOf(o)["ownerReferences"] = []any{object{
		"apiVersion": "batch/v1", "kind": "Job", "name": fmt.Sprint("job-", i/8), "uid": fmt.Sprintf("%08d-1111", i/8), "controller": true,
	}}
	raw, err := json.Marshal(o)
	if err != nil {
		b.Fatal(err)
	}
	return raw
}

func filled(b *testing.B, pods int) *follower {
	b.Helper()
	cfg := Default()
	cfg.Kubeconfig = "none"
	f := newFollower(cfg, "dc1", collectortest.Settings())
	for i := range pods {
		c, err := f.decodePod(rawPod(b, i))
		if err != nil {
			b.Fatal(err)
		}
		f.owners.parents[c.pod.Meta.Owners[0].UID] = ref{}
		f.apply(1, c)
	}
	if err := f.tell(b.Context(), collectortest.NewRecorder()); err != nil {
		b.Fatal(err)
	}
	return f
}

// BenchmarkList decodes a page of 500 pods, of which a list of 50,000 has a hundred.
func BenchmarkList(b *testing.B) {
	items := make([]json.RawMessage, page)
	for i := range items {
		items[i] = rawPod(b, i)
	}
	body, err := json.Marshal(object{"kind": "PodList", "metadata": object{"resourceVersion": "1"}, "items": items})
	if err != nil {
		b.Fatal(err)
	}
	f := newFollower(Default(), "dc1", collectortest.Settings())
	b.SetBytes(int64(len(body)))
	b.ReportAllocs()
	for b.Loop() {
		var l struct {
			Items []json.RawMessage `json:"items"`
		}
		if err := json.Unmarshal(body, &l); err != nil {
			b.Fatal(err)
		}
		for _, raw := range l.Items {
			if _, err := f.decodePod(raw); err != nil {
				b.Fatal(err)
			}
		}
	}
}

// BenchmarkFirstTell takes in 50,000 decoded pods of 6,250 workloads, and tells them.
func BenchmarkFirstTell(b *testing.B) {
	b.ReportAllocs()
	for b.Loop() {
		b.StopTimer()
		cfg := Default()
		cfg.Kubeconfig = "none"
		f := newFollower(cfg, "dc1", collectortest.Settings())
		changes := make([]change, 50000)
		for i := range changes {
			changes[i], _ = f.decodePod(rawPod(b, i))
			f.owners.parents[changes[i].pod.Meta.Owners[0].UID] = ref{}
		}
		b.StartTimer()
		for _, c := range changes {
			f.apply(1, c)
		}
		if err := f.tell(context.Background(), collectortest.NewRecorder()); err != nil {
			b.Fatal(err)
		}
	}
}

// BenchmarkWatch decodes and takes in one change of one of 50,000 pods, that says nothing new.
func BenchmarkWatch(b *testing.B) {
	f := filled(b, 50000)
	raw := rawPod(b, 7)
	b.ReportAllocs()
	for b.Loop() {
		c, err := f.decodePod(raw)
		if err != nil {
			b.Fatal(err)
		}
		f.apply(1, c)
	}
}

// BenchmarkTick looks at one workload of 6,250 that has changed, and tells nothing.
func BenchmarkTick(b *testing.B) {
	f := filled(b, 50000)
	out := collectortest.NewRecorder()
	c, err := f.decodePod(rawPod(b, 7))
	if err != nil {
		b.Fatal(err)
	}
	b.ReportAllocs()
	for b.Loop() {
		f.apply(1, c)
		if err := f.tell(context.Background(), out); err != nil {
			b.Fatal(err)
		}
	}
}
