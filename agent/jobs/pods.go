package jobs

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	podresources "k8s.io/kubelet/pkg/apis/podresources/v1"
)

// Socket is where the kubelet says what its pods use; only root may ask.
const Socket = "/var/lib/kubelet/pod-resources/kubelet.sock"

// The bounds of a question to the kubelet.
const (
	askWithin = 2 * time.Second
	maxAnswer = 16 << 20 // bytes
)

// Device is a device that the kubelet has given to a container.
type Device struct {
	Resource  string // as nvidia.com/gpu; of a device that is claimed (DRA) the driver, as gpu.nvidia.com
	ID        string // of the device plugin: NVIDIA's gives the UUID of the GPU or of the MIG device
	Namespace string
	Pod       string
	Container string
	Claim     string // namespace and name of the claim, of a device that is claimed
	Shares    uint64 // how many shares of it the container has; of one that is not shared, 1

	cdi []string // names for the container's runtime (CDI), of a device that is claimed
}

// Kubelet asks the kubelet of the machine what its pods use (API pod-resources v1).
type Kubelet struct {
	conn *grpc.ClientConn
	api  podresources.PodResourcesListerClient
}

// NewKubelet returns a client of the socket at a path; it connects with the first
// question, and again after the kubelet was restarted.
func NewKubelet(socket string) (*Kubelet, error) {
	conn, err := grpc.NewClient("unix:"+socket, grpc.WithTransportCredentials(insecure.NewCredentials()), // a file that only root may open
		grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(maxAnswer)))
	if err != nil {
		return nil, fmt.Errorf("kubelet at %s: %w", socket, err)
	}
	return &Kubelet{conn: conn, api: podresources.NewPodResourcesListerClient(conn)}, nil
}

// Close ends the connection.
func (k *Kubelet) Close() error { return k.conn.Close() }

// wanted reports whether a resource's name begins as one of some does.
func wanted(name string, prefixes []string) bool {
	return slices.ContainsFunc(prefixes, func(p string) bool { return strings.HasPrefix(name, p) })
}

// Devices returns the devices that containers have of the resources whose names begin with
// one of the prefixes, such as nvidia.com/, ordered by id. One that is shared comes once for
// each container that has it.
func (k *Kubelet) Devices(ctx context.Context, prefixes []string) ([]Device, error) {
	ctx, cancel := context.WithTimeout(ctx, askWithin)
	defer cancel()
	answer, err := k.api.List(ctx, &podresources.ListPodResourcesRequest{})
	if err != nil {
		return nil, fmt.Errorf("ask the kubelet for its pods' devices: %w", err)
	}
	var out []Device
	for _, pod := range answer.GetPodResources() {
		for _, c := range pod.GetContainers() {
			of := Device{Namespace: pod.GetNamespace(), Pod: pod.GetName(), Container: c.GetName()}
			for _, d := range c.GetDevices() {
				if wanted(d.GetResourceName(), prefixes) {
					of.Resource = d.GetResourceName()
					out = of.add(out, d.GetDeviceIds())
				}
			}
			for _, claim := range c.GetDynamicResources() {
				out = of.claimed(out, claim, prefixes)
			}
		}
	}
	slices.SortFunc(out, func(a, b Device) int {
		return cmp.Or(strings.Compare(a.ID, b.ID), strings.Compare(a.Namespace, b.Namespace), strings.Compare(a.Pod, b.Pod),
			strings.Compare(a.Container, b.Container), strings.Compare(a.Resource, b.Resource))
	})
	return out, nil
}

// add adds devices of a container by their ids, shares of one as one.
func (d Device) add(out []Device, ids []string) []Device {
	for _, id := range ids {
		d.ID, d.Shares = physical(id), 1
		if d.ID == "" {
			continue
		}
		if i := slices.IndexFunc(out, d.same); i >= 0 {
			out[i].Shares++
		} else {
			out = append(out, d)
		}
	}
	return out
}

func (d Device) same(o Device) bool {
	return d.ID == o.ID && d.Resource == o.Resource && d.Namespace == o.Namespace && d.Pod == o.Pod && d.Container == o.Container
}

// claimed adds what a container has of a claim.
func (d Device) claimed(out []Device, claim *podresources.DynamicResource, prefixes []string) []Device {
	for _, c := range claim.GetClaimResources() {
		d.cdi = nil
		for _, name := range c.GetCdiDevices() {
			d.cdi = append(d.cdi, name.GetName())
		}
		d.Resource = c.GetDriverName()
		id := c.GetDeviceName()
		if len(d.cdi) > 0 { // before Kubernetes 1.31 there was nothing else
			vendor, _, _ := strings.Cut(d.cdi[0], "=")
			d.Resource, id = cmp.Or(d.Resource, vendor), cmp.Or(id, d.cdi[0])
		}
		if wanted(d.Resource, prefixes) {
			d.Claim = claim.GetClaimNamespace() + "/" + claim.GetClaimName()
			out = d.add(out, []string{id})
		}
	}
	return out
}

// Allocatable returns how many devices of resources the kubelet can give to pods, or has given, each share
// of one for itself.
func (k *Kubelet) Allocatable(ctx context.Context, prefixes []string) (map[string]uint64, error) {
	ctx, cancel := context.WithTimeout(ctx, askWithin)
	defer cancel()
	answer, err := k.api.GetAllocatableResources(ctx, &podresources.AllocatableResourcesRequest{})
	if err != nil {
		return nil, fmt.Errorf("ask the kubelet for its devices: %w", err)
	}
	out := map[string]uint64{}
	for _, d := range answer.GetDevices() {
		if wanted(d.GetResourceName(), prefixes) {
			out[d.GetResourceName()] += uint64(len(d.GetDeviceIds()))
		}
	}
	return out, nil
}

// physical is the device of a share of it: where GPUs are shared in time, NVIDIA's device
// plugin adds ::<number> to the UUID.
func physical(id string) string {
	id, _, _ = strings.Cut(id, "::")
	return id
}
