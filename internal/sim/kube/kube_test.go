package kube_test

import (
	"context"
	"net/http/httptest"
	"strconv"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/goleak"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"

	"auspex/internal/sim/device"
	"auspex/internal/sim/kube"
	"auspex/internal/sim/tinkerbell"
	"auspex/internal/waittest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

type server struct {
	*kube.Store

	cfg   *rest.Config
	fault atomic.Pointer[device.Fault]
}

func serve(t *testing.T) *server {
	s := &server{Store: kube.NewStore(tinkerbell.Resources(), []string{tinkerbell.Namespace}, time.Now)}
	s.fault.Store(&device.Fault{})
	srv := httptest.NewServer(kube.NewHandler(s.Store, "token", func() device.Fault { return *s.fault.Load() }))
	t.Cleanup(func() {
		srv.CloseClientConnections()
		srv.Close()
	})
	s.cfg = &rest.Config{Host: srv.URL, BearerToken: "token", QPS: -1}
	return s
}

func (s *server) client(t *testing.T) dynamic.ResourceInterface {
	t.Helper()
	c, err := dynamic.NewForConfig(s.cfg)
	if err != nil {
		t.Fatal(err)
	}
	return c.Resource(workflows).Namespace(tinkerbell.Namespace)
}

func TestItAnswersAsKubernetesDoes(t *testing.T) {
	conformance(t, serve(t).cfg, tinkerbell.Namespace)
}

func TestWhoWatchesFromTooLongAgoBeginsAnew(t *testing.T) {
	s := serve(t)
	api, ctx := s.client(t), t.Context()
	o, err := api.Create(ctx, workflow("w", nil), metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := api.Patch(ctx, "w", types.MergePatchType, []byte(`{"metadata":{"annotations":{"a":"b"}}}`), metav1.PatchOptions{}); err != nil {
		t.Fatal(err)
	}
	s.Forget()
	w, err := api.Watch(ctx, metav1.ListOptions{ResourceVersion: o.GetResourceVersion()})
	if err != nil {
		t.Fatal(err)
	}
	defer w.Stop()
	if e := <-w.ResultChan(); e.Type != watch.Error || !apierrors.IsResourceExpired(apierrors.FromObject(e.Object)) {
		t.Errorf("%+v", e)
	}
	_, err = api.List(ctx, metav1.ListOptions{ResourceVersion: o.GetResourceVersion(), ResourceVersionMatch: metav1.ResourceVersionMatchExact})
	want(t, "a list as it was then", err, apierrors.IsResourceExpired)
}

func TestObjectsAndVersionsOutliveARestart(t *testing.T) {
	s := serve(t)
	o, err := s.client(t).Create(t.Context(), workflow("w", nil), metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	again := serve(t)
	if err := again.Restore(s.State(), true); err != nil {
		t.Fatal(err)
	}
	api := again.client(t)
	is, err := api.Get(t.Context(), "w", metav1.GetOptions{})
	if err != nil || is.GetUID() != o.GetUID() || is.GetResourceVersion() != o.GetResourceVersion() {
		t.Fatalf("%v %+v", err, is)
	}
	next, err := api.Create(t.Context(), workflow("x", nil), metav1.CreateOptions{})
	version := func(text string) int { n, _ := strconv.Atoi(text); return n }
	if err != nil || version(next.GetResourceVersion()) <= version(o.GetResourceVersion()) {
		t.Errorf("%v: version %s after %s", err, next.GetResourceVersion(), o.GetResourceVersion())
	}
}

func TestFaultsOfTheInterface(t *testing.T) {
	s := serve(t)
	api, ctx := s.client(t), t.Context()
	s.fault.Store(&device.Fault{Status: 403})
	_, err := api.Create(ctx, workflow("w", nil), metav1.CreateOptions{})
	want(t, "an interface that forbids", err, apierrors.IsForbidden)
	s.fault.Store(&device.Fault{Away: true})
	_, err = api.Create(ctx, workflow("w", nil), metav1.CreateOptions{}) // which a client does not repeat
	want(t, "an interface that is away", err, func(err error) bool { return err != nil && apierrors.ReasonForError(err) == metav1.StatusReasonUnknown })
	s.fault.Store(&device.Fault{Delay: time.Hour})
	short, cancel := context.WithTimeout(ctx, 50*time.Millisecond)
	defer cancel()
	_, err = api.Get(short, "w", metav1.GetOptions{})
	want(t, "an interface that answers late", err, func(err error) bool { return err != nil })
	s.fault.Store(&device.Fault{})
	_, err = api.Get(ctx, "w", metav1.GetOptions{})
	want(t, "a fault that is over", err, apierrors.IsNotFound)
}

// An informer is what the product has: it lists, watches, and goes on when the interface was away and has
// forgotten what there was.
func TestAnInformerOutlivesAnOutage(t *testing.T) {
	s := serve(t)
	api := s.client(t)
	ctx, cancel := context.WithCancel(t.Context())
	informer := cache.NewSharedIndexInformer(&cache.ListWatch{
		ListWithContextFunc:  func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) { return api.List(ctx, o) },
		WatchFuncWithContext: func(ctx context.Context, o metav1.ListOptions) (watch.Interface, error) { return api.Watch(ctx, o) },
	}, &unstructured.Unstructured{}, 0, nil)
	done := make(chan struct{})
	go func() {
		defer close(done)
		informer.RunWithContext(ctx)
	}()
	defer func() { cancel(); <-done }()
	sees := func(n int) {
		t.Helper()
		waittest.For(t, "what the informer sees is another number of objects", func() bool { return len(informer.GetStore().ListKeys()) == n })
	}
	if _, err := api.Create(ctx, workflow("a", nil), metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	sees(1)
	s.fault.Store(&device.Fault{Away: true})
	if _, err := s.Create("workflows", tinkerbell.Namespace, workflow("b", nil), false); err != nil {
		t.Fatal(err)
	}
	s.Forget()
	s.fault.Store(&device.Fault{})
	sees(2)
	if err := api.Delete(ctx, "a", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	sees(1)
}
