package acts

import (
	"cmp"
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

// Service is gNOI's System (openconfig/gnoi, system.proto): Reboot of the server, and of
// subcomponents that are GPUs, which is a reset of them. The id of an act is the metadata
// [target.MetaAction], else the request's message. Reboot answers when a reset is over.
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
	a := Act{ID: cmp.Or(meta(ctx, target.MetaAction), strings.TrimSpace(req.GetMessage())), Kind: kindOf(gpus), GPUs: gpus, By: who.Name}
	if err := s.allows(who, a.Kind); err != nil {
		return nil, err
	}
	switch {
	case a.ID == "":
		return nil, status.Errorf(codes.InvalidArgument, "an act needs an id: metadata %s, or a message", target.MetaAction)
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

// kindOf is a reset where GPUs are named.
func kindOf(gpus []uint32) string {
	if len(gpus) > 0 {
		return KindReset
	}
	return KindReboot
}

// allows refuses who may not do a kind of act.
func (s *Service) allows(who target.Peer, kind string) error {
	allowed := s.Reboots
	if kind == KindReset {
		allowed = s.Resets
	}
	if !who.Known || !slices.Contains(allowed, who.Name) {
		return status.Errorf(codes.PermissionDenied, "%s may not do that: allow.%s of the agent does not name it", who.Name, kind)
	}
	return nil
}

// RebootStatus tells of the act whose id is the metadata [target.MetaAction], else of the one that began
// last, of the server or of the GPUs that are named; or, with [target.MetaWould], of one that could be.
func (s *Service) RebootStatus(ctx context.Context, req *system.RebootStatusRequest) (*system.RebootStatusResponse, error) {
	who, err := s.Admit(ctx)
	if err != nil {
		return nil, err
	}
	gpus, err := numbers(req.GetSubcomponents())
	if err != nil {
		return nil, err
	}
	if meta(ctx, target.MetaWould) != "" {
		return s.would(ctx, who, gpus)
	}
	slices.Sort(gpus)
	id, kind := meta(ctx, target.MetaAction), kindOf(gpus)
	a, ok := s.Hand.ledger.Last(func(a *Act) bool {
		if id != "" {
			return a.ID == id
		}
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

// would tells what an act would do.
func (s *Service) would(ctx context.Context, who target.Peer, gpus []uint32) (*system.RebootStatusResponse, error) {
	kind := kindOf(gpus)
	if err := s.allows(who, kind); err != nil {
		return nil, err
	}
	out := &system.RebootStatusResponse{Status: &system.RebootStatus{}}
	if kind == KindReboot {
		return out, nil
	}
	group, err := s.Hand.group(ctx, gpus)
	if err != nil {
		return nil, status.Error(codes.FailedPrecondition, err.Error())
	}
	var names, against []string
	for _, g := range group {
		names = append(names, fmt.Sprintf("gpu%d", g.Number))
		if why := g.held(); why != "" {
			against = append(against, why)
		}
	}
	out.Reason, out.Status.Message = strings.Join(names, ", "), strings.Join(against, "; ")
	return out, nil
}

// meta returns the first value of a key of a call's metadata, or "".
func meta(ctx context.Context, key string) string {
	if md, ok := metadata.FromIncomingContext(ctx); ok {
		if v := md.Get(key); len(v) > 0 {
			return v[0]
		}
	}
	return ""
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
