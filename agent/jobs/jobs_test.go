package jobs

import (
	"context"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"
	"google.golang.org/grpc"
	podresources "k8s.io/kubelet/pkg/apis/podresources/v1"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

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

	pods  []*podresources.PodResources
	stuck bool // never answers
}

func (k *kubelet) List(ctx context.Context, _ *podresources.ListPodResourcesRequest) (*podresources.ListPodResourcesResponse, error) {
	if k.stuck {
		<-ctx.Done()
		return nil, ctx.Err()
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

func TestTheKubeletTellsWhoHasAGPU(t *testing.T) {
	const gpu = "GPU-8f6d0a1c-2b3d-4e5f-8a9b-0c1d2e3f4a5b"
	devices := func(resource string, ids ...string) *podresources.ContainerDevices {
		return &podresources.ContainerDevices{ResourceName: resource, DeviceIds: ids}
	}
	container := func(name string, d ...*podresources.ContainerDevices) *podresources.ContainerResources {
		return &podresources.ContainerResources{Name: name, Devices: d}
	}
	socket := filepath.Join(t.TempDir(), "k.sock")
	serve(t, socket, &kubelet{pods: []*podresources.PodResources{
		{Name: "train-1", Namespace: "ml", Containers: []*podresources.ContainerResources{
			container("main", devices("nvidia.com/gpu", gpu, "GPU-2"), devices("rdma/hca", "mlx5_0")), container("sidecar"),
		}},
		{Name: "note-1", Namespace: "lab", Containers: []*podresources.ContainerResources{container("main", devices("nvidia.com/gpu.shared", "GPU-3::4"))}},
		{Name: "note-2", Namespace: "lab", Containers: []*podresources.ContainerResources{container("main", devices("nvidia.com/mig-1g.10gb", "MIG-1"))}},
		{Name: "dns", Namespace: "kube-system"},
	}})
	k, err := NewKubelet(socket)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = k.Close() }()
	got, err := k.Devices(t.Context(), "nvidia.com/")
	want := []Device{
		{"nvidia.com/gpu", "GPU-2", "ml", "train-1", "main"},
		{"nvidia.com/gpu.shared", "GPU-3", "lab", "note-1", "main"},
		{"nvidia.com/gpu", gpu, "ml", "train-1", "main"},
		{"nvidia.com/mig-1g.10gb", "MIG-1", "lab", "note-2", "main"},
	}
	if diff := cmp.Diff(want, got); diff != "" || err != nil {
		t.Errorf("error %v, %s", err, diff)
	}
}

func TestAKubeletThatIsAwayOrStuckIsOneError(t *testing.T) {
	dir := t.TempDir()
	k, err := NewKubelet(filepath.Join(dir, "none.sock"))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = k.Close() }()
	if _, err := k.Devices(t.Context(), "nvidia.com/"); err == nil || !strings.Contains(err.Error(), "ask the kubelet") {
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
	if _, err := stuck.Devices(ctx, "nvidia.com/"); err == nil {
		t.Error("a kubelet that never answers answered")
	}
}
