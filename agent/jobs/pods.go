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
	Resource  string // as nvidia.com/gpu
	ID        string // of the device plugin: NVIDIA's gives the UUID of the GPU or of the MIG device
	Namespace string
	Pod       string
	Container string
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

// Devices returns the devices that containers have of the resources with a prefix, such
// as nvidia.com/, ordered by id, those that are shared once for each that has them.
func (k *Kubelet) Devices(ctx context.Context, prefix string) ([]Device, error) {
	ctx, cancel := context.WithTimeout(ctx, askWithin)
	defer cancel()
	answer, err := k.api.List(ctx, &podresources.ListPodResourcesRequest{})
	if err != nil {
		return nil, fmt.Errorf("ask the kubelet for its pods' devices: %w", err)
	}
	var out []Device
	for _, pod := range answer.GetPodResources() {
		for _, c := range pod.GetContainers() {
			for _, d := range c.GetDevices() {
				if !strings.HasPrefix(d.GetResourceName(), prefix) {
					continue
				}
				for _, id := range d.GetDeviceIds() {
					out = append(out, Device{
						Resource: d.GetResourceName(), ID: physical(id), Namespace: pod.GetNamespace(), Pod: pod.GetName(), Container: c.GetName(),
					})
				}
			}
		}
	}
	slices.SortFunc(out, func(a, b Device) int {
		return cmp.Or(strings.Compare(a.ID, b.ID), strings.Compare(a.Namespace, b.Namespace), strings.Compare(a.Pod, b.Pod), strings.Compare(a.Container, b.Container))
	})
	return out, nil
}

// physical is the device of a share of it: where GPUs are shared in time, NVIDIA's device
// plugin adds ::<number> to the UUID.
func physical(id string) string {
	id, _, _ = strings.Cut(id, "::")
	return id
}
