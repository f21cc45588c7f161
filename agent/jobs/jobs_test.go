package jobs

import (
	first "cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	gpb "github.com/openconfig/gnmi/proto/gnmi"
	"github.com/openconfig/ygot/ygot"
	"go.uber.org/goleak"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	podresources "k8s.io/kubelet/pkg/apis/podresources/v1"

	"auspex/internal/target"
	"auspex/internal/waittest"
)

func TestMain(m *testing.M) {
	goleak.VerifyTestMain(m, goleak.IgnoreAnyFunction("github.com/golang/glog.(*fileSink).flushDaemon"))
} // of ygot

const (
	uid = "0f2d8a4c-91be-4a7e-8f3a-5b6c7d8e9f01"
	ctr = "4f1c2d3e4f5a6b7c8d9e0f1a2b3c4d5e6f7a8b9c0d1e2f3a4b5c6d7e8f9a0b1c"
)

func TestACgroupTellsWhoseAProcessIs(t *testing.T) {
	under := strings.ReplaceAll(uid, "-", "_")
	for name, c := range map[string]struct {
		text string
		want Owner
	}{
		"Slurm, cgroup/v2":                        {"0::/system.slice/slurmstepd.scope/job_4711/step_0/user/task_3\n", Owner{Job: 4711, Step: "0"}},
		"Slurm, cgroup/v2, the batch script":      {"0::/system.slice/slurmstepd.scope/job_4711/step_batch/user/task_0\n", Owner{Job: 4711, Step: "batch"}},
		"Slurm, several daemons on a machine":     {"0::/system.slice/n3_slurmstepd.scope/job_9/step_extern/user/task_special\n", Owner{Job: 9, Step: "extern"}},
		"Slurm, cgroup/v1":                        {"12:cpuset:/\n4:devices:/slurm/uid_1000/job_88/step_2/task_0\n1:name=systemd:/system.slice/slurmd.service\n", Owner{Job: 88, Step: "2"}},
		"Slurm, cgroup/v1, several daemons":       {"4:devices:/slurm_n3/uid_1000/job_88/step_2\n", Owner{Job: 88, Step: "2"}},
		"Kubernetes, systemd, burstable":          {"0::/kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod" + under + ".slice/cri-containerd-" + ctr + ".scope\n", Owner{Pod: uid, Container: ctr}},
		"Kubernetes, systemd, guaranteed, CRI-O":  {"0::/kubepods.slice/kubepods-pod" + under + ".slice/crio-" + ctr + ".scope\n", Owner{Pod: uid, Container: ctr}},
		"Kubernetes, cgroupfs":                    {"0::/kubepods/besteffort/pod" + uid + "/" + ctr + "\n", Owner{Pod: uid, Container: ctr}},
		"Kubernetes, cgroupfs, v1":                {"9:memory:/kubepods/burstable/pod" + uid + "/" + ctr + "\n", Owner{Pod: uid, Container: ctr}},
		"Kubernetes in a container, as in kind":   {"0::/kubelet.slice/kubelet-kubepods.slice/kubelet-kubepods-burstable.slice/x\n0::/docker/" + ctr + "/kubepods/pod" + uid + "/" + ctr + "\n", Owner{Pod: uid, Container: ctr}},
		"a static pod":                            {"0::/kubepods/burstable/pod" + strings.Repeat("ab", 16) + "/" + ctr + "\n", Owner{Pod: strings.Repeat("ab", 16), Container: ctr}},
		"a service":                               {"0::/system.slice/nvidia-persistenced.service\n", Owner{}},
		"the root":                                {"0::/\n", Owner{}},
		"a container of no pod":                   {"0::/docker/" + ctr + "\n", Owner{}},
		"somebody's own directory named as a job": {"0::/user.slice/user-1000.slice/job_12/step_0\n", Owner{}},
		"a number that no job has":                {"0::/system.slice/slurmstepd.scope/job_99999999999999999999/step_0\n", Owner{}},
		"nothing":                                 {"", Owner{}},
		"no cgroup file":                          {"hello\n::\n:\n", Owner{}},
	} {
		t.Run(name, func(t *testing.T) {
			if diff := cmp.Diff(c.want, ParseCgroup(c.text)); diff != "" {
				t.Error(diff)
			}
		})
	}
}

func FuzzParseCgroup(f *testing.F) {
	f.Add("0::/system.slice/slurmstepd.scope/job_4711/step_0/user/task_3\n")
	f.Add("0::/kubepods/burstable/pod" + uid + "/" + ctr + "\n")
	f.Fuzz(func(t *testing.T, text string) {
		if o := ParseCgroup(text); o.Job < 0 || o.Job != 0 && !strings.Contains(text, strconv.FormatInt(o.Job, 10)) || o.Pod != "" && o.Job != 0 {
			t.Errorf("%q is %+v", text, o)
		}
	})
}

func TestAnEnvironmentTellsTheJobWhereNoCgroupDoes(t *testing.T) {
	proc := t.TempDir()
	write := func(pid int, file, text string) {
		t.Helper()
		dir := filepath.Join(proc, strconv.Itoa(pid))
		if err := os.MkdirAll(dir, 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, file), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write(7, "cgroup", "0::/system.slice/slurmd.service\n")
	write(7, "environ", "PATH=/bin\x00SLURM_JOB_ID=4711\x00SLURM_STEP_ID=0\x00SLURM_JOB_UID=1000\x00")
	write(8, "cgroup", "0::/system.slice/slurmstepd.scope/job_1/step_0\n")
	write(8, "environ", "SLURM_JOB_ID=2\x00") // what the program says of itself
	write(9, "environ", "SLURM_JOB_ID=-1\x00SLURM_STEP_ID=0\x00")
	for pid, want := range map[int]Owner{7: {Job: 4711, Step: "0"}, 8: {Job: 1, Step: "0"}, 9: {}, 10: {}} {
		if got, err := Find(proc, pid); err != nil || got != want {
			t.Errorf("process %d: %+v, want %+v (error %v)", pid, got, want, err)
		}
	}
	if err := os.RemoveAll(filepath.Join(proc, "7", "cgroup")); err != nil {
		t.Fatal(err)
	}
	if err := os.Mkdir(filepath.Join(proc, "7", "cgroup"), 0o755); err != nil { // which cannot be read as a file
		t.Fatal(err)
	}
	if got, err := Find(proc, 7); err != nil || got.Job != 4711 {
		t.Errorf("%+v, error %v: one source is enough", got, err)
	}
	write(11, "environ", "")
	if err := os.Mkdir(filepath.Join(proc, "11", "cgroup"), 0o755); err != nil {
		t.Fatal(err)
	}
	if _, err := Find(proc, 11); err == nil || !strings.Contains(err.Error(), "process 11") {
		t.Errorf("error %v", err)
	}
}

func TestThisProcessCanBeLookedAt(t *testing.T) {
	if _, err := os.Stat("/proc/self/cgroup"); err != nil {
		t.Skip("no /proc of Linux here")
	}
	if _, err := Find("/proc", os.Getpid()); err != nil {
		t.Error(err)
	}
}

// kubelet plays the kubelet's list, with the kubelet's own messages.
type kubelet struct {
	podresources.UnimplementedPodResourcesListerServer

	mu     sync.Mutex
	pods   []*podresources.PodResources
	all    []*podresources.ContainerDevices
	stuck  bool // never answers
	refuse bool
}

func (k *kubelet) set(f func()) {
	k.mu.Lock()
	defer k.mu.Unlock()
	f()
}

func (k *kubelet) GetAllocatableResources(context.Context, *podresources.AllocatableResourcesRequest) (*podresources.AllocatableResourcesResponse, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	return &podresources.AllocatableResourcesResponse{Devices: k.all}, nil
}

func (k *kubelet) List(ctx context.Context, _ *podresources.ListPodResourcesRequest) (*podresources.ListPodResourcesResponse, error) {
	if k.stuck {
		<-ctx.Done()
		return nil, ctx.Err()
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.refuse {
		return nil, errors.New("not now")
	}
	return &podresources.ListPodResourcesResponse{PodResources: k.pods}, nil
}

func serve(t *testing.T, socket string, k *kubelet) {
	t.Helper()
	lis, err := net.Listen("unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	srv := grpc.NewServer()
	podresources.RegisterPodResourcesListerServer(srv, k)
	done := make(chan error, 1)
	go func() { done <- srv.Serve(lis) }()
	t.Cleanup(func() {
		srv.Stop()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
}

func devices(resource string, ids ...string) *podresources.ContainerDevices {
	return &podresources.ContainerDevices{ResourceName: resource, DeviceIds: ids}
}

func claim(name string, of ...*podresources.ClaimResource) *podresources.DynamicResource {
	return &podresources.DynamicResource{ClaimName: name, ClaimNamespace: "ml", ClaimResources: of}
}

func claimed(driver, device string, cdi ...string) *podresources.ClaimResource {
	r := &podresources.ClaimResource{DriverName: driver, PoolName: "node", DeviceName: device}
	for _, c := range cdi {
		r.CdiDevices = append(r.CdiDevices, &podresources.CDIDevice{Name: c})
	}
	return r
}

func pod(namespace, name string, containers ...*podresources.ContainerResources) *podresources.PodResources {
	return &podresources.PodResources{Namespace: namespace, Name: name, Containers: containers}
}

func container(name string, d ...*podresources.ContainerDevices) *podresources.ContainerResources {
	return &podresources.ContainerResources{Name: name, Devices: d}
}

const gpu = "GPU-8f6d0a1c-2b3d-4e5f-8a9b-0c1d2e3f4a5b"

// held are pods of all kinds: with GPUs, shares of one, MIG devices, claims, and none.
func held() []*podresources.PodResources {
	return []*podresources.PodResources{
		pod("ml", "train-1", container("main", devices("nvidia.com/gpu", gpu, "GPU-2"), devices("rdma/hca", "mlx5_0")), container("sidecar")),
		pod("lab", "note-1", container("main", devices("nvidia.com/gpu.shared", "GPU-3::4", "GPU-3::5"))),
		pod("lab", "note-2", container("main", devices("nvidia.com/mig-1g.10gb", "MIG-1"))),
		pod("ml", "claims", &podresources.ContainerResources{Name: "main", DynamicResources: []*podresources.DynamicResource{
			claim("two", claimed("gpu.nvidia.com", "gpu-5", "k8s.gpu.nvidia.com/device=gpu-5", "k8s.gpu.nvidia.com/claim="+uid+"-gpu-5"),
				claimed("gpu.nvidia.com", "gpu-6-mig-19-0-1")),
			claim("old", claimed("", "", "nvidia.com/gpu=GPU-7")),
			claim("net", claimed("dra.net", "eth0")),
		}}),
		pod("kube-system", "dns"),
	}
}

func TestTheKubeletTellsWhoHasAGPU(t *testing.T) {
	socket := filepath.Join(t.TempDir(), "k.sock")
	serve(t, socket, &kubelet{pods: held(), all: []*podresources.ContainerDevices{
		devices("nvidia.com/gpu", gpu, "GPU-2", "GPU-9"), devices("nvidia.com/gpu", "GPU-10"), devices("rdma/hca", "mlx5_0"),
	}})
	k, err := NewKubelet(socket)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = k.Close() }()
	got, err := k.Devices(t.Context(), Default().Resources)
	one := func(resource, id, namespace, pod, claim string, shares uint64) Device {
		return Device{Resource: resource, ID: id, Namespace: namespace, Pod: pod, Container: "main", Claim: claim, Shares: shares}
	}
	want := []Device{
		one("nvidia.com/gpu", "GPU-2", "ml", "train-1", "", 1),
		one("nvidia.com/gpu.shared", "GPU-3", "lab", "note-1", "", 2),
		one("nvidia.com/gpu", gpu, "ml", "train-1", "", 1),
		one("nvidia.com/mig-1g.10gb", "MIG-1", "lab", "note-2", "", 1),
		one("gpu.nvidia.com", "gpu-5", "ml", "claims", "ml/two", 1),
		one("gpu.nvidia.com", "gpu-6-mig-19-0-1", "ml", "claims", "ml/two", 1),
		one("nvidia.com/gpu", "nvidia.com/gpu=GPU-7", "ml", "claims", "ml/old", 1),
	}
	if diff := cmp.Diff(want, got, cmpopts.IgnoreUnexported(Device{})); diff != "" || err != nil {
		t.Errorf("error %v, %s", err, diff)
	}
	all, err := k.Allocatable(t.Context(), Default().Resources)
	if diff := cmp.Diff(map[string]uint64{"nvidia.com/gpu": 4}, all); diff != "" || err != nil {
		t.Errorf("error %v, %s", err, diff)
	}
	gpus := map[string]uint32{gpu: 0, "GPU-2": 1, "GPU-3": 2, "MIG-1": 4, Minor(5): 5, Minor(6): 6, "GPU-7": 7}
	var on []uint32
	for _, d := range got {
		if n, ok := d.gpu(gpus); ok {
			on = append(on, n)
		}
	}
	if diff := cmp.Diff([]uint32{1, 2, 0, 4, 5, 6, 7}, on); diff != "" {
		t.Error(diff)
	}
}

// tells runs a reader and returns what stands in its tree.
func tells(t *testing.T, cfg Config, gpus map[string]uint32, log *slog.Logger) (r *Reader, tree func() map[string]string) {
	t.Helper()
	at := target.NewTree()
	r = NewReader(cfg, at, func() map[string]uint32 { return gpus }, log)
	tc := target.DefaultConfig()
	tc.Access.Anonymous = true
	s, err := target.NewServer(at, tc)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() {
		defer close(done)
		r.Run(ctx)
	}()
	t.Cleanup(func() {
		cancel()
		<-done
	})
	return r, func() map[string]string {
		res, err := s.Get(context.WithoutCancel(t.Context()), &gpb.GetRequest{Encoding: gpb.Encoding_PROTO})
		if status.Code(err) == codes.NotFound { // there is nothing in it
			return nil
		}
		if err != nil {
			t.Fatal(err)
		}
		out := map[string]string{}
		for _, n := range res.GetNotification() {
			for _, u := range n.GetUpdate() {
				path, err := ygot.PathToString(u.GetPath())
				if err != nil {
					t.Fatal(err)
				}
				out[path] = first.Or(u.GetVal().GetStringVal(), strconv.FormatUint(u.GetVal().GetUintVal(), 10))
			}
		}
		return out
	}
}

func TestWhatPodsHoldIsTold(t *testing.T) {
	cfg := Default()
	cfg.Socket, cfg.Interval = filepath.Join(t.TempDir(), "k.sock"), 100*time.Millisecond
	k := &kubelet{pods: held(), all: []*podresources.ContainerDevices{devices("nvidia.com/gpu", gpu, "GPU-2", "GPU-9")}}
	serve(t, cfg.Socket, k)
	r, tree := tells(t, cfg, map[string]uint32{gpu: 0, "GPU-2": 1, "GPU-3": 2, "MIG-1": 2, Minor(5): 5}, slog.New(slog.DiscardHandler))
	at := func(namespace, pod, resource, id, leaf string) string {
		return "/pods/device[container=main][id=" + id + "][namespace=" + namespace + "][pod=" + pod + "][resource=" + resource + "]/state/" + leaf
	}
	shown := func(want map[string]string) {
		t.Helper()
		waittest.Until(t, func() error {
			got := tree()
			for path, v := range want {
				if got[path] != v {
					return fmt.Errorf("%s is %q, want %q, of\n%v", path, got[path], v, got)
				}
			}
			return nil
		})
	}
	shown(map[string]string{
		at("ml", "train-1", "nvidia.com/gpu", gpu, "gpu"):               "gpu0",
		at("lab", "note-2", "nvidia.com/mig-1g.10gb", "MIG-1", "gpu"):   "gpu2",
		at("ml", "claims", "gpu.nvidia.com", "gpu-5", "gpu"):            "gpu5",
		at("ml", "claims", "gpu.nvidia.com", "gpu-5", "claim"):          "ml/two",
		at("ml", "claims", "gpu.nvidia.com", "gpu-6-mig-19-0-1", "gpu"): "",
		"/pods/resource[name=nvidia.com/gpu]/state/allocatable":         "3",
		"/pods/resource[name=nvidia.com/gpu]/state/held":                "3",
		"/pods/resource[name=nvidia.com/gpu.shared]/state/held":         "2",
		"/pods/state/left-out":                                          "0", "/pods/state/error": "",
	})
	if got := r.Pod(gpu); got != "ml/train-1" {
		t.Errorf("the GPU is of %q", got)
	}
	k.set(func() {
		k.pods = []*podresources.PodResources{
			pod("lab", "a", container("main", devices("nvidia.com/gpu.shared", "GPU-3::1"))), pod("lab", "b", container("main", devices("nvidia.com/gpu.shared", "GPU-3::2"))),
		}
	})
	shown(map[string]string{
		at("lab", "b", "nvidia.com/gpu.shared", "GPU-3", "gpu"): "gpu2", at("ml", "train-1", "nvidia.com/gpu", gpu, "pod"): "",
		"/pods/resource[name=nvidia.com/gpu]/state/held": "0", "/pods/resource[name=gpu.nvidia.com]/state/held": "",
	})
	if got := r.Pod("GPU-3"); got != "" {
		t.Errorf("a GPU that two pods share is of %q", got)
	}
	k.set(func() { k.refuse = true })
	waittest.For(t, "what is wrong with the kubelet is not told", func() bool { return tree()["/pods/state/error"] != "" })
	shown(map[string]string{at("lab", "b", "nvidia.com/gpu.shared", "GPU-3", "gpu"): "gpu2"})
	k.set(func() { k.refuse = false })
	shown(map[string]string{"/pods/state/error": ""})
}

func TestWithoutAKubeletNothingIsToldButOnce(t *testing.T) {
	cfg := Default()
	cfg.Socket, cfg.Interval = filepath.Join(t.TempDir(), "k.sock"), 100*time.Millisecond
	var b lines
	_, tree := tells(t, cfg, nil, slog.New(slog.NewTextHandler(&b, nil)))
	waittest.For(t, "it is not said", func() bool { return b.count("no kubelet is here") > 0 })
	if got := tree(); len(got) != 0 {
		t.Errorf("told: %v", got)
	}
	serve(t, cfg.Socket, &kubelet{pods: held()}) // which comes later
	waittest.For(t, "the kubelet that came is not read", func() bool { return tree()["/pods/resource[name=nvidia.com/gpu]/state/held"] == "3" })
	if n := b.count("no kubelet is here"); n != 1 {
		t.Errorf("it was said %d times:\n%s", n, b.text())
	}
}

func TestDevicesBeyondTheBoundAreCounted(t *testing.T) {
	cfg := Default()
	cfg.Socket, cfg.Interval = filepath.Join(t.TempDir(), "k.sock"), 100*time.Millisecond
	var ids []string
	for i := range maxDevices + 3 {
		ids = append(ids, fmt.Sprintf("GPU-%05d", i))
	}
	serve(t, cfg.Socket, &kubelet{pods: []*podresources.PodResources{pod("a", "b", container("main", devices("nvidia.com/gpu", ids...)))}})
	_, tree := tells(t, cfg, nil, slog.New(slog.DiscardHandler))
	waittest.For(t, "the rest is not counted", func() bool { return tree()["/pods/state/left-out"] == "3" })
}

// lines is a log.
type lines struct {
	mu sync.Mutex
	b  strings.Builder
}

func (l *lines) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func (l *lines) text() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}

func (l *lines) count(what string) int { return strings.Count(l.text(), what) }

func TestAKubeletThatIsAwayOrStuckIsOneError(t *testing.T) {
	dir := t.TempDir()
	k, err := NewKubelet(filepath.Join(dir, "none.sock"))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = k.Close() }()
	if _, err := k.Devices(t.Context(), Default().Resources); err == nil || !strings.Contains(err.Error(), "ask the kubelet") {
		t.Errorf("error %v", err)
	}
	socket := filepath.Join(dir, "stuck.sock")
	serve(t, socket, &kubelet{stuck: true})
	stuck, err := NewKubelet(socket)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = stuck.Close() }()
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := stuck.Devices(ctx, Default().Resources); err == nil {
		t.Error("a kubelet that never answers answered")
	}
}

// Whatever a plug-in or a driver calls its devices, they have a place in the tree.
func FuzzDevice(f *testing.F) {
	f.Add("nvidia.com/gpu", "GPU-1::3", "nvidia.com/gpu=0")
	f.Add("gpu.nvidia.com", "gpu-1-mig-19-0-1", "k8s.gpu.nvidia.com/claim=x-gpu-1")
	f.Add("gpu.nvidia.com", `a]b\\[c=d]/e`, "=gpu-99999999999999999999")
	f.Fuzz(func(t *testing.T, resource, id, cdi string) {
		d := Device{Resource: resource, Namespace: "a", Pod: "b", Container: "c", cdi: []string{cdi}}
		for _, d := range d.add(nil, []string{id, id}) {
			p, err := target.ParsePath(d.path())
			if err != nil {
				t.Fatalf("%q: %v", d.path(), err)
			}
			if k := p.GetElem()[1].GetKey(); k["id"] != d.ID || k["resource"] != resource {
				t.Errorf("%q is %v", d.path(), k)
			}
			if n, ok := d.gpu(map[string]uint32{Minor(1): 1, "GPU-1": 2}); ok && n != 1 && n != 2 {
				t.Errorf("it is GPU %d", n)
			}
		}
	})
}
