package kubernetes

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/cespare/xxhash/v2"

	"auspex/collectors"
	"auspex/internal/kube"
	"auspex/schemas"
)

// shards is how many pieces what was told is kept in: a change writes one of them, not what is known of 50,000 pods.
const shards = 16

// shard is a piece of what was told last, so that only changes are told, also after a restart.
type shard struct {
	Jobs  map[string]*told  `json:"jobs,omitempty"`  // by the workload's id
	Nodes map[string]string `json:"nodes,omitempty"` // what was told of a node, by its name

	batch   *collectors.Batch
	memory  *collectors.Memory
	changed bool
}

// follower holds what the API server lists, as far as it was told of it.
type follower struct {
	cfg     *Config
	device  string
	now     func() time.Time
	log     *slog.Logger
	metrics *metrics
	api     *kube.Client
	sources [2]*source // nodes and pods
	owners  *owners

	shards [shards]*shard
	loaded bool

	pods      map[string]*held     // by UID
	nodes     map[string]*nodeHeld // by name
	workloads map[string]*workload // by id
	unplaced  map[string]*held     // pods whose workload is not known yet, by UID
	fresh     map[*workload]bool   // workloads to look at
	looked    map[*workload]bool   // workloads of which all that is new waits to be told
	changed   map[string]bool      // nodes to look at
	seen      [2]map[string]bool   // what a list that has begun names; nil outside of one
	swept     bool                 // what was told and is not listed was looked for
}

func newFollower(c *Config, device string, s collectors.Settings) *follower {
	f := &follower{
		cfg: c, device: device, now: func() time.Time { return s.Now().UTC() }, log: s.Log, metrics: newMetrics(s.Metrics), api: &kube.Client{},
		pods: map[string]*held{}, nodes: map[string]*nodeHeld{}, workloads: map[string]*workload{}, unplaced: map[string]*held{},
		fresh: map[*workload]bool{}, looked: map[*workload]bool{}, changed: map[string]bool{},
	}
	f.owners = &owners{cfg: c, api: f.api, log: s.Log, metrics: f.metrics, parents: map[string]ref{}, warned: map[string]bool{}}
	f.sources = [2]*source{
		{resource: "nodes", kind: "NodeList", decode: decodeNode},
		{resource: "pods", kind: "PodList", fields: "spec.nodeName!=", decode: f.decodePod}, // one without a node holds nothing
	}
	for _, src := range f.sources {
		src.cfg, src.api, src.log, src.metrics = c, f.api, s.Log, f.metrics
	}
	for i := range f.shards {
		f.shards[i] = &shard{
			batch: collectors.NewBatch(device, Name), memory: collectors.NewMemory(s.Cursors, Name, fmt.Sprintf("%s#%d", device, i)),
		}
	}
	return f
}

func (f *follower) shard(key string) *shard { return f.shards[xxhash.Sum64String(key)%shards] }

var errIncomplete = errors.New("an object has no name or no uid")

func decodeNode(raw json.RawMessage) (change, error) {
	n := &node{}
	if err := json.Unmarshal(raw, n); err != nil {
		return change{}, err
	}
	if n.Meta.Name == "" {
		return change{}, errIncomplete
	}
	return change{op: put, node: n, version: n.Meta.ResourceVersion}, nil
}

// decodePod passes over pods without GPUs.
func (f *follower) decodePod(raw json.RawMessage) (change, error) {
	p := &pod{}
	if err := json.Unmarshal(raw, p); err != nil {
		return change{}, err
	}
	switch {
	case p.Meta.UID == "" || p.Meta.Name == "" || p.Meta.Namespace == "":
		return change{}, errIncomplete
	case p.Spec.Node == "" || p.gpus(f.cfg.Resources) == 0:
		return change{op: nothing, version: p.Meta.ResourceVersion}, nil
	}
	return change{op: put, pod: p, version: p.Meta.ResourceVersion}, nil
}

// Run implements [collectors.Collector]. After an error the next Run goes on where this one was.
func (f *follower) Run(ctx context.Context, out collectors.Emitter) error {
	defer f.api.Close()
	within, cancel := context.WithCancel(ctx)
	in := [2]chan change{make(chan change, 256), make(chan change, 256)}
	ended := make(chan error, len(in))
	for i, s := range f.sources {
		if f.seen[i] != nil { // a list that was not read to its end
			s.version, f.seen[i] = "", nil
		}
		go func() { ended <- s.follow(within, in[i]) }()
	}
	err := f.loop(within, in, ended, out)
	cancel()
	for range in {
		if e := <-ended; err == nil {
			err = e
		}
	}
	if ctx.Err() != nil {
		return nil
	}
	return err
}

func (f *follower) loop(ctx context.Context, in [2]chan change, ended chan error, out collectors.Emitter) error {
	tick := time.NewTicker(f.cfg.Interval)
	defer tick.Stop()
	for {
		synced := f.synced()
		select {
		case <-ctx.Done():
			return nil
		case err := <-ended:
			ended <- nil // for who waits for all
			return err
		case c := <-in[0]:
			f.apply(0, c)
		case c := <-in[1]:
			f.apply(1, c)
		case <-tick.C:
			if !synced {
				continue
			}
			if err := f.tell(ctx, out); err != nil {
				return err
			}
			f.contact(out)
		}
		if !synced && f.synced() {
			if err := f.tell(ctx, out); err != nil {
				return err
			}
			f.contact(out)
		}
	}
}

// contact says that the API server answers, if it does: watches that say nothing are no answer.
func (f *follower) contact(out collectors.Emitter) {
	for _, s := range f.sources {
		if time.Since(time.Unix(0, s.heard.Load())) > f.cfg.Stall {
			return
		}
	}
	collectors.Contact(out)
}

// synced reports whether both lists were read.
func (f *follower) synced() bool {
	for i, s := range f.sources {
		if s.version == "" || f.seen[i] != nil {
			return false
		}
	}
	return true
}

// apply takes in one change.
func (f *follower) apply(i int, c change) {
	s := f.sources[i]
	switch c.op {
	case begin:
		f.seen[i] = map[string]bool{}
	case put:
		if c.pod != nil {
			f.putPod(c.pod)
		} else {
			f.putNode(c.node)
		}
		if f.seen[i] != nil {
			f.seen[i][c.key()] = true
		}
	case del:
		if c.pod != nil {
			f.dropPod(c.pod.Meta.UID, c.pod)
		} else {
			f.dropNode(c.node.Meta.Name)
		}
	case end:
		for uid := range f.pods {
			if i == 1 && !f.seen[i][uid] {
				f.dropPod(uid, nil)
			}
		}
		for name := range f.nodes {
			if i == 0 && !f.seen[i][name] {
				f.dropNode(name)
			}
		}
		f.seen[i] = nil
	}
	if c.version != "" {
		s.version = c.version
	}
}

func (c *change) key() string {
	if c.pod != nil {
		return c.pod.Meta.UID
	}
	return c.node.Meta.Name
}

// tell says what has changed since it was told last.
func (f *follower) tell(ctx context.Context, out collectors.Emitter) error {
	if err := f.load(ctx); err != nil {
		return err
	}
	now := f.now()
	if err := f.place(ctx); err != nil {
		return err
	}
	f.sweep(now)
	for w := range f.fresh {
		f.looked[w] = true
		if f.look(w, now) {
			delete(f.fresh, w)
		}
	}
	for name := range f.changed {
		f.lookNode(name, now)
		delete(f.changed, name)
	}
	f.metrics.pods.Set(float64(len(f.pods)))
	f.metrics.workloads.Set(float64(len(f.workloads)))
	f.owners.forget(f.pods)
	for _, s := range f.shards {
		if _, events := s.batch.Len(); !s.changed && events == 0 {
			continue
		}
		known, err := json.Marshal(s)
		if err != nil {
			return fmt.Errorf("store cursor of %s: %w", f.device, err)
		}
		told, err := s.memory.Tell(ctx, known, s.batch, out, now)
		if !told {
			f.untold()
		}
		s.changed = err != nil
		if err != nil {
			return err
		}
	}
	for w := range f.looked {
		w.gone, w.failed = nil, w.failing
		f.forget(w)
	}
	clear(f.looked)
	return nil
}

// untold has all be looked at again, since something was not taken: from what was kept, which may be before it.
func (f *follower) untold() {
	f.loaded, f.swept = false, false
	for _, s := range f.shards {
		s.batch.Discard()
	}
	for _, w := range f.workloads {
		f.fresh[w], w.failing = true, w.failed
	}
	for name := range f.nodes {
		f.changed[name] = true
	}
	clear(f.looked)
}

// load reads what was told before this process, and tells first what may not have been.
func (f *follower) load(ctx context.Context) error {
	if f.loaded {
		return nil
	}
	for _, s := range f.shards {
		known, err := s.memory.Load(ctx)
		if err != nil {
			return err
		}
		s.Jobs, s.Nodes, s.changed = map[string]*told{}, map[string]string{}, len(known) > 0
		if len(known) == 0 {
			continue
		}
		if err := json.Unmarshal(known, s); err != nil {
			f.log.Warn("malformed cursor; starting over", "error", err)
			s.Jobs, s.Nodes = map[string]*told{}, map[string]string{}
		}
		for id, t := range s.Jobs {
			if t == nil {
				delete(s.Jobs, id)
			}
		}
	}
	f.loaded = true
	return nil
}

// sweep looks once for workloads and nodes that were told before this process and are not listed any more.
func (f *follower) sweep(now time.Time) {
	if f.swept {
		return
	}
	f.swept = true
	for _, s := range f.shards {
		for id, t := range s.Jobs {
			if f.workloads[id] != nil {
				continue
			}
			if !ended(t.State) && t.State != "" {
				w := &workload{id: id}
				f.told(w, t, stateUnknown, now, nil, nil, nil, now)
			}
			delete(s.Jobs, id)
			s.changed = true
		}
		for name := range s.Nodes {
			if f.nodes[name] == nil {
				delete(s.Nodes, name)
				s.changed = true
			}
		}
	}
}

func (f *follower) event(resource, typ, code string, at, now time.Time) schemas.Event {
	return schemas.Event{
		Time: at, Observed: now, Source: schemas.SourceScheduler, Resource: resource, Type: typ, Code: code, Severity: schemas.SeverityInfo,
	}
}
