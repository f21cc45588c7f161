package kubernetes

import (
	"context"
	"encoding/json"
	"testing"

	"auspex/collectors/collectortest"
)

func disrupted(reason string) func(object) {
	return func(o object) {
		o["status"].(object)["conditions"] = []any{object{"type": "DisruptionTarget", "status": "True", "reason": reason}}
	}
}

func because(reason string) func(object) {
	return func(o object) { o["status"].(object)["reason"] = reason }
}

func deleted(o object) { metadataOf(o)["deletionTimestamp"] = at(collectortest.Now) }

func TestHowAPodEnded(t *testing.T) {
	restarted := func(o object) {
		o["status"].(object)["containerStatuses"] = []any{object{
			"name": "c", "restartCount": 3,
			"lastState": object{"terminated": object{"exitCode": 139, "reason": "Error", "finishedAt": at(collectortest.Now)}},
		}}
	}
	for name, c := range map[string]struct {
		pod    object
		want   outcome
		reason string // of its first failure
		code   int64
	}{
		"a container was out of memory":     {podOf("a", "u", "n", "Failed", exited(137, "OOMKilled", 0)), failing, "OOMKilled", 137},
		"its node was short of memory":      {podOf("a", "u", "n", "Failed", because("Evicted"), disrupted("TerminationByKubelet"), exited(137, "Error", 0)), failing, "Evicted", 1},
		"its node was lost":                 {podOf("a", "u", "n", "Failed", disrupted("DeletionByTaintManager"), deleted, exited(137, "Error", 0)), failing, "NodeLost", 1},
		"its node did not answer":           {podOf("a", "u", "n", "Failed", because("NodeLost")), failing, "NodeLost", 1},
		"its node has no GPU for it":        {podOf("a", "u", "n", "Failed", because("UnexpectedAdmissionError")), failing, "UnexpectedAdmissionError", 1},
		"nobody says why":                   {podOf("a", "u", "n", "Failed"), failing, "Error", 1},
		"somebody deleted it":               {podOf("a", "u", "n", "Failed", deleted, exited(143, "Error", 0)), cancelled, "", 0},
		"it failed while it was deleted":    {podOf("a", "u", "n", "Failed", deleted, exited(139, "Error", 0)), failing, "Error", 139},
		"somebody drained its node":         {podOf("a", "u", "n", "Failed", disrupted("EvictionByEvictionAPI"), exited(1, "Error", 0)), cancelled, "", 0},
		"another had its place":             {podOf("a", "u", "n", "Failed", disrupted("PreemptionByScheduler"), exited(1, "Error", 0)), preempted, "", 0},
		"it may not run longer":             {podOf("a", "u", "n", "Failed", because("DeadlineExceeded"), exited(143, "Error", 0)), cancelled, "", 0},
		"it is done":                        {podOf("a", "u", "n", "Succeeded", exited(0, "Completed", 0)), succeeded, "", 0},
		"it runs again after a crash":       {podOf("a", "u", "n", "Running", restarted), active, "Error", 139},
		"it was never started":              {podOf("a", "u", "n", "Pending"), waiting, "", 0},
		"its node answers not, but may yet": {podOf("a", "u", "n", "Unknown"), active, "", 0},
	} {
		raw, err := json.Marshal(c.pod)
		if err != nil {
			t.Fatal(err)
		}
		p := &pod{}
		if err := json.Unmarshal(raw, p); err != nil {
			t.Fatal(err)
		}
		h := Default().reduce(p, 1, collectortest.Now)
		reason, code := "", int64(0)
		if len(h.failures) > 0 {
			reason, code = h.failures[0].reason, h.failures[0].code
		}
		if h.outcome != c.want || reason != c.reason || code != c.code {
			t.Errorf("%s: outcome %d, %q, code %d", name, h.outcome, reason, code)
		}
	}
}

// The end of a container has one id, while it is its state and when it has become its last one.
func TestAFailureHasOneID(t *testing.T) {
	failed := func(restarts int, field string) string {
		p := &pod{}
		raw, _ := json.Marshal(podOf("a", "u", "n", "Running", func(o object) {
			o["status"].(object)["containerStatuses"] = []any{object{
				"name": "c", "restartCount": restarts, field: object{"terminated": object{"exitCode": 1, "finishedAt": at(collectortest.Now)}},
			}}
		}))
		if err := json.Unmarshal(raw, p); err != nil {
			t.Fatal(err)
		}
		return Default().reduce(p, 1, collectortest.Now).failures[0].id
	}
	if a, b := failed(2, "state"), failed(3, "lastState"); a != b {
		t.Errorf("%s and %s", a, b)
	}
	if a, b := failed(2, "state"), failed(3, "state"); a == b {
		t.Errorf("two failures have the id %s", a)
	}
}

func FuzzDecode(f *testing.F) {
	for _, o := range []object{podOf("a", "u", "n", "Failed", exited(1, "Error", 0), deleted), nodeOf("n")} {
		raw, _ := json.Marshal(o)
		f.Add(raw)
	}
	f.Add([]byte(`{"metadata":{"uid":"u","name":"a","namespace":"b"},"spec":{"nodeName":"n","containers":[{"resources":{"limits":{"nvidia.com/gpu":"1"}}}]},"status":{"containerStatuses":[{"state":{"terminated":{"exitCode":-1}}}]}}`))
	f.Fuzz(func(_ *testing.T, raw []byte) {
		cfg := Default()
		cfg.Kubeconfig = "none"
		fo := newFollower(cfg, "dc1", collectortest.Settings())
		for i, decode := range []func(json.RawMessage) (change, error){decodeNode, fo.decodePod} {
			if c, err := decode(raw); err == nil && c.op != nothing {
				fo.apply(i, c)
				if c.pod != nil {
					fo.owners.parents[c.pod.Meta.owner().UID] = ref{}
				}
				c.op = del
				if err := fo.tell(context.Background(), collectortest.NewRecorder()); err != nil {
					continue
				}
				fo.apply(i, c)
				_ = fo.tell(context.Background(), collectortest.NewRecorder())
			}
		}
	})
}
