package acts

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	system "github.com/openconfig/gnoi/system"
	"github.com/openconfig/gnoi/types"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"auspex/internal/target"
)

// MetaID is the metadata of a call that holds the id of its act.
const MetaID = "auspex-action"

// Service is gNOI's System (openconfig/gnoi, system.proto): Reboot of the server, and of
// subcomponents that are GPUs, which is a reset of them. The id of an act is the metadata
// [MetaID], else the request's message. Reboot answers when a reset is over.
type Service struct {
	system.UnimplementedSystemServer

	Hand    *Hand
	Admit   func(ctx context.Context) (target.Peer, error)
	Resets  []string // peers that may reset GPUs
	Reboots []string // peers that may reboot the server
}

// Reboot does an act.
func (s *Service) Reboot(ctx context.Context, req *system.RebootRequest) (*system.RebootResponse, error) {
	who, err := s.Admit(ctx)
	if err != nil {
		return nil, err
	}
	gpus, err := numbers(req.GetSubcomponents())
	if err != nil {
		return nil, err
	}
	a := Act{ID: id(ctx, req.GetMessage()), Kind: KindReboot, GPUs: gpus, By: who.Name}
	allowed, right := s.Reboots, "reboot"
	if len(gpus) > 0 {
		a.Kind, allowed, right = KindReset, s.Resets, "reset"
	}
	switch {
	case !who.Known || !slices.Contains(allowed, who.Name):
		return nil, status.Errorf(codes.PermissionDenied, "%s may not do that: allow.%s of the agent does not name it", who.Name, right)
	case a.ID == "":
		return nil, status.Errorf(codes.InvalidArgument, "an act needs an id: metadata %s, or a message", MetaID)
	case req.GetDelay() > 0:
		return nil, status.Error(codes.Unimplemented, "a delay is not supported: ask when it is to be done")
	case a.Kind == KindReboot && req.GetMethod() != system.RebootMethod_COLD && req.GetMethod() != system.RebootMethod_WARM,
		a.Kind == KindReset && req.GetMethod() != system.RebootMethod_COLD:
		return nil, status.Errorf(codes.Unimplemented, "method %s is not supported: a server takes COLD or WARM, a GPU COLD", req.GetMethod())
	}
	got, err := s.Hand.Do(ctx, a)
	switch {
	case errors.Is(err, errOther):
		return nil, status.Error(codes.AlreadyExists, err.Error())
	case err != nil:
		return nil, status.Error(codes.FailedPrecondition, err.Error())
	case got.Outcome == Failed:
		return nil, status.Error(codes.Aborted, got.Message)
	case got.Outcome == Unknown:
		return nil, status.Error(codes.Unknown, got.Message)
	}
	return &system.RebootResponse{}, nil
}

// RebootStatus tells of the act that began last, of the server or of the GPUs that are named.
func (s *Service) RebootStatus(ctx context.Context, req *system.RebootStatusRequest) (*system.RebootStatusResponse, error) {
	if _, err := s.Admit(ctx); err != nil {
		return nil, err
	}
	gpus, err := numbers(req.GetSubcomponents())
	if err != nil {
		return nil, err
	}
	slices.Sort(gpus)
	kind := KindReboot
	if len(gpus) > 0 {
		kind = KindReset
	}
	a, ok := s.Hand.ledger.Last(func(a *Act) bool {
		return a.Kind == kind && !slices.ContainsFunc(gpus, func(n uint32) bool { return !slices.Contains(a.GPUs, n) })
	})
	if !ok {
		return &system.RebootStatusResponse{}, nil
	}
	out := &system.RebootStatusResponse{
		Active: a.Outcome == Running, When: uint64(a.Began.UnixNano()), Reason: a.ID, Method: system.RebootMethod_COLD,
		Status: &system.RebootStatus{Message: a.Message},
	}
	switch a.Outcome {
	case Done:
		out.Status.Status = system.RebootStatus_STATUS_SUCCESS
	case Failed:
		out.Status.Status = system.RebootStatus_STATUS_FAILURE
	}
	return out, nil
}

func id(ctx context.Context, message string) string {
	if md, ok := metadata.FromIncomingContext(ctx); ok {
		if v := md.Get(MetaID); len(v) > 0 && v[0] != "" {
			return v[0]
		}
	}
	return strings.TrimSpace(message)
}

// numbers reads paths of GPUs, as /gpus/gpu[name=gpu3].
func numbers(paths []*types.Path) (out []uint32, err error) {
	for _, p := range paths {
		e := p.GetElem()
		name := ""
		if len(e) == 2 && e[0].GetName() == "gpus" && e[1].GetName() == "gpu" {
			name = e[1].GetKey()["name"]
		}
		number, ok := strings.CutPrefix(name, "gpu")
		n, err := strconv.ParseUint(number, 10, 16)
		if !ok || err != nil {
			return nil, status.Error(codes.InvalidArgument, fmt.Sprintf("subcomponent %v is no GPU, as /gpus/gpu[name=gpu3]", p))
		}
		out = append(out, uint32(n))
	}
	return out, nil
}
