package tinkerbell

import (
	"context"
	"errors"
	"sync"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"

	"auspex/internal/kube"
)

// tends is how often what was opened is looked after where nothing has changed.
const tends = 10 * time.Second

// store holds what a watch has seen, and tells when that changes.
type store struct {
	cache.Store
	changed chan struct{}

	mu    sync.Mutex
	whole bool // a list was read to its end
}

func newStore() *store {
	return &store{Store: cache.NewStore(cache.MetaNamespaceKeyFunc), changed: make(chan struct{}, 1)}
}

func (s *store) tell() {
	select {
	case s.changed <- struct{}{}:
	default:
	}
}

// Add implements cache.ReflectorStore.
func (s *store) Add(o any) error { defer s.tell(); return s.Store.Add(o) }

// Update implements cache.ReflectorStore.
func (s *store) Update(o any) error { defer s.tell(); return s.Store.Update(o) }

// Delete implements cache.ReflectorStore.
func (s *store) Delete(o any) error { defer s.tell(); return s.Store.Delete(o) }

// Replace implements cache.ReflectorStore.
func (s *store) Replace(all []any, version string) error {
	defer s.tell()
	s.mu.Lock()
	s.whole = true
	s.mu.Unlock()
	return s.Store.Replace(all, version)
}

func (s *store) synced() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.whole
}

func (s *store) workflow(namespace, name string) *Workflow {
	o, found, err := s.GetByKey(namespace + "/" + name)
	if err != nil || !found {
		return nil
	}
	w, _ := o.(*Workflow)
	return w
}

// Follow implements [control.Follower]: one watch of all workflows and one of all hardware of the
// namespace, whatever is installed; and what was opened for workflows of ours is closed when they end,
// also where nobody waits for them any more.
func (i *installer) Follow(ctx context.Context) {
	var wg sync.WaitGroup
	defer wg.Wait()
	quiet := klog.Logger{} // what a reflector says is said by heard, once
	for _, one := range []struct {
		resource string
		expected runtime.Object
		list     func() runtime.Object
		into     *store
	}{
		{workflows, &Workflow{}, func() runtime.Object { return &WorkflowList{} }, i.flows},
		{hardware, &Hardware{}, func() runtime.Object { return &HardwareList{} }, i.machines},
	} {
		r := cache.NewReflectorWithOptions(&cache.ListWatch{
			ListWithContextFunc: func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
				l := one.list()
				err := i.list(ctx, one.resource, o, l)
				i.metrics.did("list", one.resource, err)
				if o.Continue == "" {
					i.metrics.lists.WithLabelValues(one.resource).Inc()
				}
				i.heard(one.resource, err)
				return l, err
			},
			WatchFuncWithContext: func(ctx context.Context, o metav1.ListOptions) (watch.Interface, error) {
				w, err := i.watch(ctx, one.resource, o)
				i.metrics.did("watch", one.resource, err)
				i.metrics.watches.WithLabelValues(one.resource).Inc()
				i.heard(one.resource, err)
				return w, err
			},
		}, one.expected, one.into, cache.ReflectorOptions{Name: one.resource, Logger: &quiet})
		wg.Go(func() { r.RunWithContext(klog.NewContext(ctx, quiet)) })
	}
	said, swept := map[string]string{}, time.Time{}
	told := func(what string, err error) {
		switch {
		case err == nil:
			delete(said, what)
		case ctx.Err() == nil && err.Error() != said[what]: // once, not at each look
			said[what] = err.Error()
			i.log.Warn("something is left to do in Tinkerbell's API; it is tried again", "what", what, "error", err)
		}
	}
	for {
		select {
		case <-ctx.Done():
			return
		case <-i.flows.changed:
		case <-i.machines.changed:
		case <-time.After(tends):
		}
		i.count()
		if i.cfg.Rufio && i.now().Sub(swept) >= cleans {
			swept = i.now()
			told("take away jobs of Rufio that have ended", i.units.sweep(ctx, swept))
		}
		if i.flows.synced() && i.machines.synced() {
			told("close what was opened for an installation", i.tend(ctx))
			told("tell what others have there", i.compare(ctx))
		}
	}
}

// heard notes whether the API can be followed.
func (i *installer) heard(resource string, err error) {
	i.mu.Lock()
	defer i.mu.Unlock()
	switch was := i.away; {
	case errors.Is(err, context.Canceled):
	case err == nil && was != nil:
		i.away = nil
		i.log.Info("the Kubernetes API answers again", "resource", resource, "after", i.now().Sub(i.since))
	case err != nil && was == nil:
		i.away, i.since = kube.Worded(err), i.now()
		i.log.Warn("the Kubernetes API cannot be followed", "resource", resource, "error", i.away)
	}
}

// unseen is why the API is not followed now, and since when.
func (i *installer) unseen() (error, time.Time) { //nolint:revive,staticcheck // the error is what is asked for
	i.mu.Lock()
	defer i.mu.Unlock()
	return i.away, i.since
}

// tend closes what is open for workflows of ours that have ended or are gone, and takes those away
// that should have ended and that nobody has taken away.
func (i *installer) tend(ctx context.Context) error {
	var errs []error
	for _, o := range i.flows.List() {
		w, ok := o.(*Workflow)
		switch {
		case !ok || !w.ours():
		case w.ended():
			errs = append(errs, i.finish(ctx, w))
		case i.now().After(i.deadline(w).Add(lingers)):
			errs = append(errs, i.end(ctx, w))
		}
	}
	for _, o := range i.machines.List() {
		h, ok := o.(*Hardware)
		if !ok || h.Labels[managedBy] != manager {
			continue
		}
		name := h.Annotations[netbootFor]
		if name == "" || i.flows.workflow(i.cfg.Namespace, name) != nil {
			continue
		}
		w, err := i.workflow(ctx, name) // the two watches are not of one moment
		if err == nil && (w == nil || w.ended()) {
			err = i.shut(ctx, h.Name, name)
		}
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}
