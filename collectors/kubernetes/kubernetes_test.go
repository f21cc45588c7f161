package kubernetes

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"auspex/collectors"
	"auspex/collectors/collectortest"
	"auspex/internal/waittest"
	"auspex/schemas"
)

// site follows a fake API server on a clock that the test moves.
type site struct {
	*testing.T
	api   *fake
	cfg   *Config
	s     collectors.Settings
	rec   *collectortest.Recorder
	clock atomic.Int64
	f     *follower
}

func newSite(t *testing.T) *site {
	s := &site{T: t, api: newFake(t), cfg: Default(), rec: collectortest.NewRecorder()}
	s.cfg.Kubeconfig = filepath.Join(t.TempDir(), "kubeconfig")
	kubeconfig(t, s.cfg.Kubeconfig, s.api.Server)
	s.cfg.Interval = 100 * time.Millisecond
	s.clock.Store(collectortest.Now.Unix())
	s.s = collectortest.Settings()
	s.s.Now = func() time.Time { return time.Unix(s.clock.Load(), 0).UTC() }
	return s
}

// run follows until the returned function is called, again after errors, as the runner does.
func (s *site) run(out collectors.Emitter) (stop func()) {
	s.Helper()
	if err := s.cfg.Validate(); err != nil && s.cfg.Stall >= 2*time.Minute {
		s.Fatal(err)
	}
	s.f = newFollower(s.cfg, "dc1", s.s)
	ctx, cancel := context.WithCancel(s.Context())
	done := make(chan struct{})
	go func() {
		defer close(done)
		for ctx.Err() == nil {
			if err := s.f.Run(ctx, out); err != nil {
				s.Logf("run: %v", err)
			}
		}
	}()
	return func() {
		cancel()
		<-done
	}
}

func (s *site) told() (out []string) {
	for _, ev := range s.rec.Events() {
		text := strings.TrimSpace(ev.Resource + " " + ev.Type + " " + ev.Code)
		if n := ev.Attr("nodes"); n != "" {
			text += " " + n
		}
		if r := ev.Attr("reason"); r != "" {
			text += " " + r
		}
		out = append(out, text)
	}
	return out
}

func (s *site) until(want string) {
	s.Helper()
	waittest.For(s, want, func() bool { return slices.Contains(s.told(), want) })
}

// settle lets the time pass after which a workload without pods has ended.
func (s *site) settle(want string) {
	s.Helper()
	waittest.For(s, want, func() bool {
		s.clock.Add(10)
		return slices.Contains(s.told(), want)
	})
}

func at(t time.Time) string { return t.UTC().Format(time.RFC3339) }

var job = object{"apiVersion": "batch/v1", "kind": "Job", "name": "train", "uid": "11112222-0000", "controller": true}

func podOf(name, uid, node, phase string, more ...func(o object)) object {
	o := object{
		"metadata": object{
			"name": name, "namespace": "ml", "uid": uid, "creationTimestamp": at(collectortest.Now.Add(-2 * time.Hour)), "ownerReferences": []any{job},
		},
		"spec": object{"nodeName": node, "containers": []any{object{"name": "c", "resources": object{"limits": object{"nvidia.com/gpu": "8"}}}}},
		"status": object{
			"phase": phase, "startTime": at(collectortest.Now.Add(-time.Hour)),
		},
	}
	for _, f := range more {
		f(o)
	}
	return o
}

func exited(code int, reason string, ago time.Duration) func(object) {
	return func(o object) {
		o["status"].(object)["containerStatuses"] = []any{object{
			"name": "c", "restartCount": 0,
			"state": object{"terminated": object{"exitCode": code, "reason": reason, "finishedAt": at(collectortest.Now.Add(-ago))}},
		}}
	}
}

func nodeOf(name string) object {
	return object{
		"metadata": object{"name": name, "uid": name, "labels": object{"asset": "server-" + name}},
		"spec":     object{},
		"status":   object{"conditions": []any{object{"type": "Ready", "status": "True"}}},
	}
}

const train = "ml/train@11112222"

func (s *site) two() {
	s.api.set("nodes", "ADDED", nodeOf("n1"))
	s.api.set("nodes", "ADDED", nodeOf("n2"))
	s.api.set("pods", "ADDED", podOf("train-0", "u0", "n1", "Running"))
	s.api.set("pods", "ADDED", podOf("train-1", "u1", "n2", "Running"))
	for i := range 9 { // which hold no GPU, and make pages
		s.api.set("pods", "ADDED", podOf(fmt.Sprint("web-", i), fmt.Sprint("w", i), "n1", "Running", func(o object) {
			o["spec"].(object)["containers"] = []any{object{"name": "c"}}
		}))
	}
}

func TestPodsOfOneJobAreOneWorkload(t *testing.T) {
	s := newSite(t)
	s.two()
	defer s.run(s.rec)()
	s.until(train + " workload.state RUNNING n1,n2")
	s.api.set("pods", "MODIFIED", podOf("train-1", "u1", "n2", "Failed", exited(139, "Error", time.Second)))
	s.until(train + " workload.failed 139 Error")
	s.api.set("pods", "ADDED", podOf("train-1b", "u2", "n3", "Running"))
	s.until(train + " workload.state RUNNING n1,n3")
	s.api.set("pods", "MODIFIED", podOf("train-0", "u0", "n1", "Succeeded", exited(0, "Completed", 0)))
	s.api.set("pods", "MODIFIED", podOf("train-1b", "u2", "n3", "Succeeded", exited(0, "Completed", 0), func(o object) {
		metadataOf(o)["creationTimestamp"] = at(collectortest.Now)
	}))
	s.settle(train + " workload.state FAILED") // its pod that failed was not replaced: it was created before
	if n := s.api.count("list pods"); n != 1 {
		t.Errorf("pods were listed %d times, want once: what changes is watched", n)
	}
	if n := s.api.count("get"); n != 1 {
		t.Errorf("%d owners were asked for, want one for all pods of a job", n)
	}
}

func TestAPodThatWasReplacedDoesNotFailItsWorkload(t *testing.T) {
	s := newSite(t)
	s.two()
	defer s.run(s.rec)()
	s.until(train + " workload.state RUNNING n1,n2")
	s.api.set("pods", "MODIFIED", podOf("train-1", "u1", "n2", "Failed", exited(137, "OOMKilled", time.Minute)))
	s.until(train + " workload.failed 137 OOMKilled")
	s.api.set("pods", "ADDED", podOf("train-1b", "u2", "n2", "Succeeded", exited(0, "Completed", 0), func(o object) {
		metadataOf(o)["creationTimestamp"] = at(collectortest.Now)
	}))
	s.api.set("pods", "MODIFIED", podOf("train-0", "u0", "n1", "Succeeded", exited(0, "Completed", 0)))
	s.settle(train + " workload.state COMPLETED")
}

func TestWhatWasDeletedWhileNobodyWatchedIsToldOnce(t *testing.T) {
	s := newSite(t)
	s.two()
	stop := s.run(s.rec)
	s.until(train + " workload.state RUNNING n1,n2")
	stop()
	s.api.set("pods", "DELETED", podOf("train-0", "u0", "n1", "Running"))
	s.api.set("pods", "DELETED", podOf("train-1", "u1", "n2", "Running"))
	stop = s.run(s.rec)
	s.until(train + " workload.state UNKNOWN")
	stop()
	before := len(s.told())
	// One of the same name later is another.
	again := object{"apiVersion": "batch/v1", "kind": "Job", "name": "train", "uid": "33334444-0000", "controller": true}
	s.api.set("pods", "ADDED", podOf("train-0", "u7", "n1", "Running", func(o object) { metadataOf(o)["ownerReferences"] = []any{again} }))
	defer s.run(s.rec)()
	s.until("ml/train@33334444 workload.state RUNNING n1")
	if got := s.told()[before:]; len(got) != 1 {
		t.Errorf("told after a restart: %q", got)
	}
}

func TestAWatchGoesOnWhereItWasAndIsListedAnewWhereItCannot(t *testing.T) {
	s := newSite(t)
	s.two()
	defer s.run(s.rec)()
	s.until(train + " workload.state RUNNING n1,n2")
	watches := func(n int) {
		t.Helper()
		waittest.For(t, "watch", func() bool { return s.api.count("watch pods") >= n })
	}
	watches(1)
	s.api.end()
	watches(2)
	s.api.set("pods", "MODIFIED", podOf("train-1", "u1", "n2", "Failed", exited(1, "Error", 0)))
	s.until(train + " workload.failed 1 Error")
	if n := s.api.count("list pods"); n != 1 {
		t.Errorf("pods were listed %d times", n)
	}
	s.api.do(func() { delete(s.api.objects["pods"], "ml/train-0") }) // and nobody is told
	s.api.forget()
	s.api.end()
	s.settle(train + " workload.state FAILED")
	if n := s.api.count("list pods"); n != 2 {
		t.Errorf("pods were listed %d times", n)
	}
	if n := testutil.ToFloat64(s.f.metrics.lists.WithLabelValues("pods", "gone")); n != 1 {
		t.Errorf("%v lists since a version was gone", n)
	}
}

func TestAWatchThatSaysNothingIsBegunAnew(t *testing.T) {
	s := newSite(t)
	s.cfg.Stall = 50 * time.Millisecond
	s.two()
	s.api.mute = true
	defer s.run(s.rec)()
	s.until(train + " workload.state RUNNING n1,n2")
	s.api.set("pods", "MODIFIED", podOf("train-1", "u1", "n2", "Failed", exited(1, "Error", 0)))
	waittest.For(t, "watch", func() bool { return s.api.count("watch pods") >= 2 })
	s.api.do(func() { s.api.mute = false })
	s.until(train + " workload.failed 1 Error")
	if n := testutil.ToFloat64(s.f.metrics.watches.WithLabelValues("pods", "stalled")); n == 0 {
		t.Error("a watch that stalled was not counted")
	}
	if n := s.api.count("list pods"); n != 1 {
		t.Errorf("pods were listed %d times", n)
	}
}

// Killed at its first event, before and after it was told: another process tells what is missing, under the same ids.
func TestNothingIsLostOrToldTwiceOverAKill(t *testing.T) {
	history := func(t *testing.T, kill bool, mute bool) map[string]string {
		s := newSite(t)
		step := func(ready func(), want string, settle bool) {
			ready()
			if kill {
				cursors := s.s.Cursors
				m := &collectortest.Mortal{Cursors: cursors, Emitter: s.rec, Mute: mute}
				s.s.Cursors = m
				stop := s.run(m)
				waittest.For(t, "end of the process", func() bool {
					if settle {
						s.clock.Add(10)
					}
					return m.Dead()
				})
				stop()
				s.s.Cursors = cursors
			}
			stop := s.run(s.rec)
			if settle {
				s.settle(want)
			} else {
				s.until(want)
			}
			stop()
		}
		step(s.two, train+" workload.state RUNNING n1,n2", false)
		step(func() {
			s.api.set("pods", "MODIFIED", podOf("train-1", "u1", "n2", "Failed", exited(9, "Error", 0)))
		}, train+" workload.failed 9 Error", false)
		step(func() {
			s.api.set("pods", "MODIFIED", podOf("train-0", "u0", "n1", "Succeeded", exited(0, "Completed", 0)))
		}, train+" workload.state FAILED", true)
		ids := map[string]string{}
		for i, ev := range s.rec.Events() {
			if !strings.HasPrefix(ev.Type, "workload.") {
				continue
			}
			was, twice := ids[ev.ID]
			if twice && was != s.told()[i] {
				t.Errorf("two events have the id %s: %s and %s", ev.ID, was, s.told()[i])
			}
			if twice && !kill {
				t.Errorf("%s was told twice", was)
			}
			ids[ev.ID] = s.told()[i]
		}
		return ids
	}
	want := history(t, false, false)
	for _, mute := range []bool{true, false} {
		if d := cmp.Diff(want, history(t, true, mute)); d != "" {
			t.Errorf("mute %v (-want +got):\n%s", mute, d)
		}
	}
}

func TestABusThatIsAwayLosesNothing(t *testing.T) {
	s := newSite(t)
	s.two()
	cursors := s.s.Cursors
	m := &collectortest.Mortal{Cursors: cursors, Emitter: s.rec, Mute: true} // whose successor has something to tell first
	s.s.Cursors = m
	stop := s.run(m)
	waittest.For(t, "end of the process", m.Dead)
	stop()
	s.s.Cursors = cursors
	s.rec.Fail(errors.New("the bus is away"))
	before := s.api.count("watch pods")
	defer s.run(s.rec)()
	waittest.For(t, "more runs than one", func() bool { return s.api.count("watch pods") > before+2 })
	s.rec.Fail(nil)
	s.until(train + " workload.state RUNNING n1,n2")
	seen := map[string]int{}
	for _, ev := range s.rec.Events() {
		seen[ev.ID]++
	}
	for id, n := range seen {
		if n != 1 {
			t.Errorf("%s was told %d times", id, n)
		}
	}
}

func TestAMissingRightAndAnExpiredTokenAreNamed(t *testing.T) {
	for reason, want := range map[string]string{
		"Forbidden": "the role lacks a right", "Unauthorized": "credentials refused",
	} {
		s := newSite(t)
		code := map[string]int{"Forbidden": http.StatusForbidden, "Unauthorized": http.StatusUnauthorized}[reason]
		s.api.refuse = func(r *http.Request) (int, string) {
			if strings.HasSuffix(r.URL.Path, "/pods") {
				return code, reason
			}
			return 0, ""
		}
		err := collectors.Try(t.Context(), s.cfg, schemas.Resource{ID: "dc1", Kind: schemas.KindSite}, s.s)
		if err == nil || !strings.Contains(err.Error(), want) || !strings.Contains(err.Error(), "pods") || strings.Contains(err.Error(), secret) {
			t.Errorf("%s: %v", reason, err)
		}
		s.api.do(func() { s.api.refuse = nil })
		if err := collectors.Try(t.Context(), s.cfg, schemas.Resource{ID: "dc1", Kind: schemas.KindSite}, s.s); err != nil {
			t.Errorf("after it was given: %v", err)
		}
	}
}

func TestAnOwnerThatMayNotBeReadStandsForItsWorkload(t *testing.T) {
	s := newSite(t)
	s.api.refuse = func(r *http.Request) (int, string) {
		if strings.Contains(r.URL.Path, "/jobs") {
			return http.StatusForbidden, "Forbidden"
		}
		return 0, ""
	}
	s.two()
	defer s.run(s.rec)()
	s.until(train + " workload.state RUNNING n1,n2")
	if n := testutil.ToFloat64(s.f.metrics.unread.WithLabelValues("forbidden")); n != 1 {
		t.Errorf("%v owners unread", n)
	}
}

// Where the API says which devices a container has, the workload names the GPUs of the inventory, also once they come later.
func TestAWorkloadNamesItsGPUsWhereTheAPIDoes(t *testing.T) {
	s := newSite(t)
	gpu := func(n int) schemas.Resource {
		id := fmt.Sprint("n1/gpu", n)
		return schemas.Resource{ID: id, Kind: schemas.KindGPU, Attrs: schemas.AttrsOf(map[string]string{schemas.AttrUUID: fmt.Sprint("GPU-", n)})}
	}
	s.cfg.Targets([]schemas.Resource{gpu(0), gpu(1)})
	s.two()
	defer s.run(s.rec)()
	s.until(train + " workload.state RUNNING n1,n2")
	s.api.set("pods", "MODIFIED", podOf("train-0", "u0", "n1", "Running", func(o object) {
		o["status"].(object)["containerStatuses"] = []any{object{"name": "c", "allocatedResourcesStatus": []any{
			object{"name": "nvidia.com/gpu", "resources": []any{object{"resourceID": "GPU-1::3", "health": "Healthy"}, object{"resourceID": "GPU-0"}, object{"resourceID": "GPU-9"}}},
			object{"name": "rdma/hca", "resources": []any{object{"resourceID": "GPU-1"}}},
		}}}
	}))
	waittest.For(t, "the GPUs", func() bool {
		return slices.ContainsFunc(s.rec.Events(), func(ev schemas.Event) bool {
			return ev.Attr("gpus") == "n1/gpu0,n1/gpu1" && ev.Attr("nodes") == "n1,n2" && ev.Code == "RUNNING"
		})
	})
}

func TestServersAreFoundByWhatTheirNodesHave(t *testing.T) {
	s := newSite(t)
	s.cfg.Nodes.By, s.cfg.Nodes.Key, s.cfg.Nodes.Attr = "label", "asset", "asset_tag"
	s.cfg.Targets([]schemas.Resource{
		{ID: "rack1-u4", Kind: schemas.KindServer, Attrs: schemas.AttrsOf(map[string]string{"asset_tag": "server-n1"})},
	})
	s.two()
	defer s.run(s.rec)()
	s.until(train + " workload.state RUNNING n2,rack1-u4")
	s.until("rack1-u4 node.state READY")
}

func TestMalformedValuesAreNamed(t *testing.T) {
	for want, change := range map[string]func(*Config){
		"kubeconfig and in_cluster": func(c *Config) { c.InCluster = true },
		"nodes.by":                  func(c *Config) { c.Nodes.By = "luck" },
		"resources":                 func(c *Config) { c.Resources = []string{"a b"} },
		"owner_keys":                func(c *Config) { c.OwnerKeys = []string{"/"} },
		"stall":                     func(c *Config) { c.Stall = time.Second },
	} {
		c := Default()
		c.Kubeconfig = "x"
		change(c)
		if err := c.Validate(); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", want, err)
		}
	}
}
