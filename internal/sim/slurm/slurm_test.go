package slurm

import (
	"bytes"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"auspex/internal/sim/fleet"
	"auspex/internal/sim/ledger"
)

var start = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)

// cluster is a scheduler over nodes whose health the test sets.
type cluster struct {
	*Controller
	t     *testing.T
	url   string
	at    time.Time
	nodes []string
	down  map[string]bool
	sick  map[string]bool
	busy  map[string]bool
	log   []ledger.Entry
}

func (c *cluster) Servers() []string    { return c.nodes }
func (c *cluster) Config() fleet.Config { return fleet.Config{GPUs: 8, ServersPerRack: 4} }
func (c *cluster) Ready(n string) (up, whole bool) {
	return !c.down[n], !c.sick[n]
}
func (c *cluster) SetLoad(n string, _ []int, l fleet.Load) { c.busy[n] = l.Util > 0 }

func newCluster(t *testing.T) *cluster {
	c := &cluster{t: t, at: start, down: map[string]bool{}, sick: map[string]bool{}, busy: map[string]bool{}}
	for _, r := range []string{"1", "2", "3", "4"} {
		for _, n := range []string{"1", "2", "3", "4"} {
			c.nodes = append(c.nodes, "gpu-r0"+r+"-0"+n)
		}
	}
	c.Controller = c.fresh()
	c.Controller.Start()
	srv := httptest.NewServer(c.Handler())
	t.Cleanup(srv.Close)
	c.url = srv.URL + "/slurm/v0.0.42"
	return c
}

func (c *cluster) fresh() *Controller {
	return New(c, 1, "secret", 0, ledger.Discard(func(e ledger.Entry) { c.log = append(c.log, e) }), c.at)
}

func (c *cluster) pass(d time.Duration) {
	for end := c.at.Add(d); c.at.Before(end); {
		c.at = c.at.Add(500 * time.Millisecond)
		c.Step(c.at)
	}
}

type reply struct {
	Nodes  []nodeJSON  `json:"nodes"`
	Jobs   []jobJSON   `json:"jobs"`
	Errors []restError `json:"errors"`
}

func (c *cluster) call(method, path, token string, body any) (int, reply) {
	c.t.Helper()
	var b bytes.Buffer
	if body != nil {
		if err := json.NewEncoder(&b).Encode(body); err != nil {
			c.t.Fatal(err)
		}
	}
	req, err := http.NewRequest(method, c.url+path, &b)
	if err != nil {
		c.t.Fatal(err)
	}
	if token != "" {
		req.Header.Set(TokenHeader, token)
	}
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		c.t.Fatal(err)
	}
	defer res.Body.Close()
	var r reply
	_ = json.NewDecoder(res.Body).Decode(&r)
	return res.StatusCode, r
}

func (c *cluster) state(name string) []string {
	c.t.Helper()
	_, r := c.call("GET", "/node/"+name, "secret", nil)
	if len(r.Nodes) != 1 {
		c.t.Fatalf("%d nodes called %s", len(r.Nodes), name)
	}
	return r.Nodes[0].State
}

func TestABusyNodeDrainsWhenItsJobIsGone(t *testing.T) {
	c := newCluster(t)
	job := c.Running()[0]
	node := job.Nodes[0]
	if d := cmp.Diff([]string{"ALLOCATED"}, c.state(node)); d != "" {
		t.Fatal(d)
	}
	if status, r := c.call("POST", "/node/"+node, "secret", map[string]any{"state": []string{"DRAIN"}, "reason": "auspex: i1"}); status != 200 || len(r.Errors) != 0 {
		t.Fatalf("drain: %d %v", status, r.Errors)
	}
	if d := cmp.Diff([]string{"ALLOCATED", "DRAIN"}, c.state(node)); d != "" {
		t.Error(d)
	}
	c.FailAfter(job.ID, 0, 1, 0)
	c.pass(time.Second)
	if d := cmp.Diff([]string{"IDLE", "DRAIN"}, c.state(node)); d != "" {
		t.Error(d)
	}
	c.pass(time.Minute)
	for _, j := range c.Running() {
		if slices.Contains(j.Nodes, node) {
			t.Errorf("%s started on a drained node", j.Key())
		}
	}
	c.call("POST", "/node/"+node, "secret", map[string]any{"state": "RESUME"})
	if got := c.state(node); slices.Contains(got, "DRAIN") {
		t.Errorf("after resume: %v", got)
	}
	if _, r := c.call("GET", "/node/"+node, "secret", nil); r.Nodes[0].Reason != "auspex: i1" {
		t.Errorf("reason %q: it stays after a resume", r.Nodes[0].Reason)
	}
}

func TestAnswersToWrongRequests(t *testing.T) {
	c := newCluster(t)
	for _, tc := range []struct {
		name, method, path, token string
		body                      any
		status                    int
		errors                    bool
	}{
		{"no token", "GET", "/nodes", "", nil, 401, false},
		{"a bad token", "GET", "/nodes", "guess", nil, 511, true},
		{"an unknown node is an error with status 200", "GET", "/node/nosuch", "secret", nil, 200, true},
		{"an unknown node cannot be drained", "POST", "/node/nosuch", "secret", map[string]any{"state": []string{"DRAIN"}}, 500, true},
		{"an unknown state", "POST", "/node/gpu-r01-01", "secret", map[string]any{"state": []string{"NAP"}}, 500, true},
		{"a body that is no object", "POST", "/node/gpu-r01-01", "secret", []int{1}, 400, true},
		{"an unknown job", "GET", "/job/1", "secret", nil, 500, true},
		{"a drain without a reason is accepted", "POST", "/node/gpu-r01-01", "secret", map[string]any{"state": []string{"DRAIN"}}, 200, false},
	} {
		t.Run(tc.name, func(t *testing.T) {
			status, r := c.call(tc.method, tc.path, tc.token, tc.body)
			if status != tc.status || (len(r.Errors) > 0) != tc.errors {
				t.Errorf("%d %v", status, r.Errors)
			}
			if len(r.Nodes) != 0 {
				t.Errorf("nodes %v", r.Nodes)
			}
		})
	}
}

func TestJobsOfANodeThatDiesFailAndRunAgainElsewhere(t *testing.T) {
	c := newCluster(t)
	job := c.Running()[0]
	node := job.Nodes[0]
	c.down[node] = true
	c.pass(2 * time.Second)
	if got := c.state(node); !slices.Contains(got, "NOT_RESPONDING") || slices.Contains(got, "DOWN") {
		t.Errorf("after 2 s: %v", got)
	}
	c.pass(10 * time.Second)
	if got := c.state(node); got[0] != "DOWN" {
		t.Errorf("after 12 s: %v", got)
	}
	_, r := c.call("GET", "/jobs", "secret", nil)
	i := slices.IndexFunc(r.Jobs, func(j jobJSON) bool { return j.JobID == job.ID })
	if i < 0 || !slices.Equal(r.Jobs[i].JobState, []string{NodeFail}) {
		t.Fatalf("job: %+v", r.Jobs)
	}
	for _, n := range job.Nodes[1:] {
		if c.busy[n] && !c.runsOn(n) {
			t.Errorf("%s works for a job that has failed", n)
		}
	}
	c.down[node] = false
	c.pass(time.Second)
	if got := c.state(node); got[0] == "DOWN" {
		t.Errorf("after its return: %v", got)
	}
	c.pass(30 * time.Second)
	if !slices.ContainsFunc(c.Running(), func(j Job) bool { return j.Name == job.Name && j.ID > job.ID && len(j.Nodes) == len(job.Nodes) }) {
		t.Error("the job was not started again")
	}
}

func (c *cluster) runsOn(n string) bool {
	return slices.ContainsFunc(c.Running(), func(j Job) bool { return slices.Contains(j.Nodes, n) })
}

func TestALostGPUKillsItsJobAndKeepsOthersAway(t *testing.T) {
	c := newCluster(t)
	job := c.Running()[0]
	c.sick[job.Nodes[0]] = true
	c.Changed(start, fleet.Change{Kind: fleet.GPULost, Server: job.Nodes[0], GPU: 3})
	c.pass(time.Minute)
	if slices.ContainsFunc(c.Running(), func(j Job) bool { return j.ID == job.ID }) {
		t.Error("the job lives on without its GPU")
	}
	if c.runsOn(job.Nodes[0]) {
		t.Error("a job started on a server that lacks a GPU")
	}
	failed := slices.ContainsFunc(c.log, func(e ledger.Entry) bool { return e.Device == job.Key() && e.Code == Failed })
	if !failed {
		t.Error("the ledger does not know of the failure")
	}
}

func TestJobsComeAndGo(t *testing.T) {
	c := newCluster(t)
	first := len(c.Running())
	c.pass(40 * time.Minute)
	states := map[string]int{}
	for _, e := range c.log {
		states[e.Code]++
	}
	if states[Completed] == 0 || states[Failed]+states[NodeFail] > 0 {
		t.Errorf("states %v", states)
	}
	if now := len(c.Running()); now < first-2 {
		t.Errorf("%d jobs at first, %d later", first, now)
	}
	used := map[string]bool{}
	for _, j := range c.Running() {
		for _, n := range j.Nodes {
			if used[n] {
				t.Errorf("two jobs on %s", n)
			}
			used[n] = true
		}
	}
}

func TestHostlist(t *testing.T) {
	for _, tc := range []struct {
		in   []string
		want string
	}{
		{nil, ""},
		{[]string{"gpu-r01-01"}, "gpu-r01-01"},
		{[]string{"gpu-r01-01", "gpu-r01-02", "gpu-r01-03", "gpu-r01-07"}, "gpu-r01-[01-03,07]"},
		{[]string{"gpu-r01-08", "gpu-r02-01", "gpu-r02-03"}, "gpu-r01-08,gpu-r02-[01,03]"},
		{[]string{"login", "gpu9", "gpu10"}, "login,gpu9,gpu10"},
	} {
		if d := cmp.Diff(tc.want, Hostlist(tc.in)); d != "" {
			t.Error(d)
		}
	}
}

func TestAnotherSchedulerGoesOnWithTheJobs(t *testing.T) {
	c := newCluster(t)
	c.pass(time.Second)
	reason := "by hand"
	if err := c.Update("gpu-r04-04", []string{"DRAIN"}, &reason); err != nil {
		t.Fatal(err)
	}
	before := c.Running()
	doc, err := json.Marshal(c.State())
	if err != nil {
		t.Fatal(err)
	}
	var st State
	if err := json.Unmarshal(doc, &st); err != nil {
		t.Fatal(err)
	}
	lost := before[0].Nodes[0]
	c.Controller, c.log, c.busy = c.fresh(), nil, map[string]bool{}
	c.Restore(st, []string{lost})
	c.pass(time.Second)
	running := map[uint32][]string{}
	for _, j := range c.Running() {
		running[j.ID] = j.Nodes
	}
	for _, j := range before {
		got, ok := running[j.ID]
		if failed := slices.Contains(j.Nodes, lost); ok == failed {
			t.Errorf("%s: runs %t, its node booted %t", j.Key(), ok, failed)
		} else if d := cmp.Diff(j.Nodes, got); ok && d != "" {
			t.Errorf("%s: %s", j.Key(), d)
		} else if ok && !c.busy[j.Nodes[0]] {
			t.Errorf("%s runs without load", j.Key())
		}
	}
	if s := c.byName["gpu-r04-04"]; !s.drain || s.reason != reason {
		t.Errorf("the drained node is %v, %q", s.state(), s.reason)
	}
	c.pass(operatorDelay)
	if s := c.byName["gpu-r04-04"]; s.drain {
		t.Error("nobody resumes the node")
	}
	if !slices.ContainsFunc(c.log, func(e ledger.Entry) bool { return e.Kind == ledger.KindNode && e.Device == "gpu-r04-04" }) {
		t.Error("the ledger does not tell of the node")
	}
	if id := c.NextID(); id < st.NextJob {
		t.Errorf("job numbers start over at %d", id)
	}
}
