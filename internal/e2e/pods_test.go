package e2e

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"net"
	"path/filepath"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	gpb "github.com/openconfig/gnmi/proto/gnmi"
	"google.golang.org/grpc"
	podresources "k8s.io/kubelet/pkg/apis/podresources/v1"

	"auspex/agent/jobs"
	"auspex/collectors"
	"auspex/collectors/agent"
	"auspex/collectors/collectortest"
	workloads "auspex/collectors/kubernetes"
	"auspex/internal/bus"
	"auspex/internal/bus/mem"
	"auspex/internal/cmdb"
	"auspex/internal/target"
	"auspex/internal/waittest"
	"auspex/pipeline/detect"
	"auspex/schemas"
	"auspex/schemas/auspexv1"
)

// kubelet is the list of a kubelet, which has no cluster of its own here.
type kubelet struct {
	podresources.UnimplementedPodResourcesListerServer
	pods []*podresources.PodResources
}

func (k *kubelet) List(context.Context, *podresources.ListPodResourcesRequest) (*podresources.ListPodResourcesResponse, error) {
	return &podresources.ListPodResourcesResponse{PodResources: k.pods}, nil
}

func (k *kubelet) GetAllocatableResources(context.Context, *podresources.AllocatableResourcesRequest) (*podresources.AllocatableResourcesResponse, error) {
	return &podresources.AllocatableResourcesResponse{}, nil
}

// published puts the events of collectors on a bus.
type published struct{ bus bus.Bus }

// Emit implements [collectors.Emitter].
func (p published) Emit(ctx context.Context, b *auspexv1.Batch) error {
	if len(b.GetEvents()) == 0 {
		return nil
	}
	raw, err := (&auspexv1.Batch{Device: b.GetDevice(), Collector: b.GetCollector(), Observed: time.Now().UnixNano(), Events: b.GetEvents()}).MarshalVT()
	if err != nil {
		return err
	}
	return p.bus.Publish(ctx, bus.Message{Topic: schemas.TopicEvents, Key: b.GetDevice(), Value: raw})
}

// A pod of a real API server and the pod resources of its node become one workload with its GPUs: the API says whose the
// pod is, the agent which GPUs it holds.
func TestAPodOfARealClusterHasTheGPUsThatItsNodeSays(t *testing.T) {
	k := newKubernetes(t)
	space := fmt.Sprintf("pods%d", time.Now().UnixNano())
	node := "n-" + space
	k.do("POST", "/api/v1/namespaces", `{"metadata":{"name":"`+space+`"}}`, nil)
	k.do("POST", "/api/v1/nodes", `{"metadata":{"name":"`+node+`"}}`, nil)
	t.Cleanup(func() {
		for _, path := range []string{"/api/v1/nodes/" + node, "/api/v1/namespaces/" + space} {
			_, _ = k.c.Delete().RequestURI(path).DoRaw(context.WithoutCancel(t.Context()))
		}
	})
	var job struct {
		Metadata struct{ UID string } `json:"metadata"`
	}
	k.do("POST", "/apis/batch/v1/namespaces/"+space+"/jobs", `{"metadata":{"name":"train"},"spec":{"suspend":true,"template":{"spec":{"restartPolicy":"Never","containers":[{"name":"c","image":"x"}]}}}}`, &job)
	for _, name := range []string{"train-0", "train-1"} {
		k.do("POST", "/api/v1/namespaces/"+space+"/pods", `{"metadata":{"name":"`+name+`","ownerReferences":[{"apiVersion":"batch/v1","kind":"Job","name":"train","uid":"`+job.Metadata.UID+`","controller":true}]},
"spec":{"nodeName":"`+node+`","containers":[{"name":"c","image":"x","resources":{"limits":{"nvidia.com/gpu":"2"}}}]}}`, nil)
		k.do("PATCH", "/api/v1/namespaces/"+space+"/pods/"+name+"/status", `{"status":{"phase":"Running","startTime":"`+time.Now().UTC().Format(time.RFC3339)+`"}}`, nil)
	}

	// The node's agent, as it reads its kubelet and is read.
	socket := filepath.Join(t.TempDir(), "k.sock")
	holds := func(pod, resource string, ids ...string) *podresources.PodResources {
		return &podresources.PodResources{Namespace: space, Name: pod, Containers: []*podresources.ContainerResources{
			{Name: "c", Devices: []*podresources.ContainerDevices{{ResourceName: resource, DeviceIds: ids}}},
		}}
	}
	kube := grpc.NewServer()
	podresources.RegisterPodResourcesListerServer(kube, &kubelet{pods: []*podresources.PodResources{
		holds("train-0", "nvidia.com/gpu", "GPU-0", "GPU-3"), holds("train-1", "nvidia.com/mig-3g.40gb", "MIG-2"), holds("other", "nvidia.com/gpu", "GPU-1"),
	}})
	tree := target.NewTree()
	id := tree.Leaf("/journal/state/id")
	w := tree.Write(time.Now())
	w.Text(id, "j")
	w.Close()
	cfg := target.DefaultConfig()
	cfg.MinSample, cfg.Access.Anonymous, cfg.Log = 100*time.Millisecond, true, nothing{}
	server, err := target.NewServer(tree, cfg)
	if err != nil {
		t.Fatal(err)
	}
	gnmi := grpc.NewServer()
	gpb.RegisterGNMIServer(gnmi, server)
	serve := func(s *grpc.Server, network, addr string) string {
		l, err := net.Listen(network, addr)
		if err != nil {
			t.Fatal(err)
		}
		done := make(chan error, 1)
		go func() { done <- s.Serve(l) }()
		t.Cleanup(func() {
			s.Stop()
			<-done
		})
		return l.Addr().String()
	}
	serve(kube, "unix", socket)
	addr := serve(gnmi, "tcp", "127.0.0.1:0")
	pods := jobs.Default()
	pods.Socket, pods.Interval = socket, 100*time.Millisecond
	reader := jobs.NewReader(pods, tree, func() map[string]uint32 {
		return map[string]uint32{"GPU-0": 0, "GPU-1": 1, "MIG-2": 2, "GPU-3": 3}
	}, slog.New(slog.DiscardHandler))

	// Auspex.
	topology := schemas.Topology{Resources: []schemas.Resource{
		{ID: "dc1", Kind: schemas.KindSite},
		{ID: node, Kind: schemas.KindServer, Parent: "dc1", Attrs: schemas.AttrsOf(map[string]string{schemas.AttrAgentAddress: addr})},
	}}
	for i := range 4 {
		topology.Resources = append(topology.Resources, schemas.Resource{ID: fmt.Sprintf("%s/gpu%d", node, i), Kind: schemas.KindGPU, Parent: node})
	}
	inv, problems := cmdb.FromTopology(topology)
	if len(problems) > 0 {
		t.Fatal(problems)
	}
	b := mem.New(4)
	t.Cleanup(func() { _ = b.Close() })
	settings := collectortest.Settings()
	settings.Now = time.Now
	follow := workloads.Default()
	follow.Kubeconfig, follow.Interval = peer(t, "KUBE_ADMIN"), 100*time.Millisecond
	read := agent.Default()
	read.TLS.Disabled, read.SampleInterval = true, 100*time.Millisecond
	ctx, cancel := context.WithCancel(t.Context())
	var ended []chan struct{}
	start := func(run func()) {
		done := make(chan struct{})
		ended = append(ended, done)
		go func() {
			defer close(done)
			run()
		}()
	}
	t.Cleanup(func() {
		cancel()
		for _, done := range ended {
			<-done
		}
	})
	start(func() { reader.Run(ctx) })
	start(func() {
		_ = detect.NewWorkloads(b, inv, nil, nil, nil).Run(ctx, func() {})
	})
	for _, c := range []collectors.Config{follow, read} {
		for _, of := range c.Targets(topology.Resources) {
			made, err := c.New(of, settings)
			if err != nil {
				t.Fatal(err)
			}
			start(func() {
				for ctx.Err() == nil {
					if err := made.Run(ctx, published{b}); err != nil {
						t.Logf("%s: %v", of.ID, err)
						time.Sleep(100 * time.Millisecond) // as the runner waits
					}
				}
			})
		}
	}
	name := space + "/train@" + job.Metadata.UID[:8]
	want := []string{node + "/gpu0", node + "/gpu2", node + "/gpu3"}
	waittest.Until(t, func() error {
		job, _ := inv.Snapshot().Workload(name)
		if d := cmp.Diff(want, job.Resources); d != "" {
			text, _ := json.Marshal(job)
			return fmt.Errorf("%s\n%s", text, d)
		}
		return nil
	})
}

// nothing is a journal without records.
type nothing struct{}

// Read implements [target.Log].
func (nothing) Read(uint64, int) ([]target.Record, error) { return nil, nil }

// Changed implements [target.Log].
func (nothing) Changed() <-chan struct{} { return nil }

// Newest implements [target.Log].
func (nothing) Newest() uint64 { return 0 }
