package acts

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/openconfig/gnoi/healthz"
	system "github.com/openconfig/gnoi/system"
	"github.com/openconfig/gnoi/types"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/timestamppb"

	"auspex/internal/target"
)

// Service is gNOI's System (openconfig/gnoi, system.proto): Reboot of the server, and of
// subcomponents. GPUs as those are a reset of them; /gpus, which is all that the driver has, is
// a reload of the driver. The id of an act is the metadata [target.MetaAction], else the
// request's message. Reboot answers when a reset or a reload is over.
type Service struct {
	system.UnimplementedSystemServer

	Hand  *Hand
	Admit func(ctx context.Context) (target.Peer, error)
	May   map[string][]string // by kind of act: peers that may have it done
}

// Reboot does an act.
func (s *Service) Reboot(ctx context.Context, req *system.RebootRequest) (*system.RebootResponse, error) {
	who, err := s.Admit(ctx)
	if err != nil {
		return nil, err
	}
	gpus, driver, err := subcomponents(req.GetSubcomponents())
	if err != nil {
		return nil, err
	}
	a := Act{ID: cmp.Or(meta(ctx, target.MetaAction), strings.TrimSpace(req.GetMessage())), Kind: kindOf(gpus, driver), GPUs: gpus, By: who.Name}
	if err := s.allows(who, a.Kind); err != nil {
		return nil, err
	}
	switch {
	case a.ID == "":
		return nil, status.Errorf(codes.InvalidArgument, "an act needs an id: metadata %s, or a message", target.MetaAction)
	case req.GetDelay() > 0:
		return nil, status.Error(codes.Unimplemented, "a delay is not supported: ask when it is to be done")
	case a.Kind == KindReboot && req.GetMethod() != system.RebootMethod_COLD && req.GetMethod() != system.RebootMethod_WARM,
		a.Kind != KindReboot && req.GetMethod() != system.RebootMethod_COLD:
		return nil, status.Errorf(codes.Unimplemented, "method %s is not supported: a server takes COLD or WARM, GPUs and their driver COLD", req.GetMethod())
	}
	if _, err := s.do(ctx, a); err != nil {
		return nil, err
	}
	return &system.RebootResponse{}, nil
}

// do does an act, and returns what became of it, or an error in gRPC's terms.
func (s *Service) do(ctx context.Context, a Act) (Act, error) {
	got, err := s.Hand.Do(ctx, a)
	switch {
	case errors.Is(err, errOther):
		return got, status.Error(codes.AlreadyExists, err.Error())
	case err != nil:
		return got, status.Error(codes.FailedPrecondition, err.Error())
	}
	return got, unhappy(&got)
}

// unhappy is the error of an act that was not done, or of which that is not known.
func unhappy(a *Act) error {
	switch a.Outcome {
	case Failed:
		return status.Error(codes.Aborted, a.Message)
	case Unknown:
		return status.Error(codes.Unknown, a.Message)
	}
	return nil
}

// kindOf is a reset where GPUs are named, and a reload where their driver is.
func kindOf(gpus []uint32, driver bool) string {
	switch {
	case driver:
		return KindReload
	case len(gpus) > 0:
		return KindReset
	}
	return KindReboot
}

// allows refuses who may not do a kind of act.
func (s *Service) allows(who target.Peer, kind string) error {
	if !who.Known || !slices.Contains(s.May[kind], who.Name) {
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
	gpus, driver, err := subcomponents(req.GetSubcomponents())
	if err != nil {
		return nil, err
	}
	slices.Sort(gpus)
	id, kind := meta(ctx, target.MetaAction), kindOf(gpus, driver)
	if meta(ctx, target.MetaWould) != "" {
		names, against, err := s.would(ctx, who, Act{Kind: kind, GPUs: gpus})
		return &system.RebootStatusResponse{Reason: strings.Join(names, ", "), Status: &system.RebootStatus{Message: against}}, err
	}
	a, ok := s.Hand.Ledger.Last(func(a *Act) bool {
		if id != "" {
			return a.ID == id
		}
		return a.Kind == kind && !slices.ContainsFunc(gpus, func(n uint32) bool { return !slices.Contains(a.GPUs, n) })
	})
	if !ok {
		return &system.RebootStatusResponse{}, nil
	}
	when := a.Began
	if !a.Ended.IsZero() {
		when = a.Ended // what is read from here on is read of GPUs as the act has left them
	}
	out := &system.RebootStatusResponse{
		Active: a.Outcome == Running, When: uint64(when.UnixNano()), Reason: a.ID, Method: system.RebootMethod_COLD,
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

// would tells what an act would be done to, and what stands against it.
func (s *Service) would(ctx context.Context, who target.Peer, a Act) (names []string, against string, err error) {
	if err := s.allows(who, a.Kind); err != nil {
		return nil, "", err
	}
	group, against, err := s.Hand.would(ctx, &a)
	if err != nil {
		return nil, "", status.Error(codes.FailedPrecondition, err.Error())
	}
	for _, g := range group {
		names = append(names, fmt.Sprintf("gpu%d", g.Number))
	}
	return names, against, nil
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

// subcomponents reads paths of GPUs, as /gpus/gpu[name=gpu3], or the one of all of them, /gpus.
func subcomponents(paths []*types.Path) (gpus []uint32, all bool, err error) {
	for _, p := range paths {
		e := p.GetElem()
		if len(e) == 1 && e[0].GetName() == "gpus" && len(paths) == 1 {
			return nil, true, nil
		}
		name := ""
		if len(e) == 2 && e[0].GetName() == "gpus" && e[1].GetName() == "gpu" {
			name = e[1].GetKey()["name"]
		}
		number, ok := strings.CutPrefix(name, "gpu")
		n, err := strconv.ParseUint(number, 10, 16)
		if !ok || err != nil {
			return nil, false, status.Error(codes.InvalidArgument, fmt.Sprintf("subcomponent %v is no GPU, as /gpus/gpu[name=gpu3], nor all of them, /gpus", p))
		}
		gpus = append(gpus, uint32(n))
	}
	return gpus, false, nil
}

// Health is gNOI's Healthz (openconfig/gnoi, healthz.proto): Check is a validation of a GPU, or of
// all of them (/gpus), with an id as acts have it, at the level that the metadata [target.MetaLevel]
// names. Get tells of the last one, or of that with an id; the report is its artifact, as JSON.
type Health struct {
	healthz.UnimplementedHealthzServer

	*Service
}

// Check validates GPUs. It answers when that is over; who cannot wait asks Get.
func (h *Health) Check(ctx context.Context, req *healthz.CheckRequest) (*healthz.CheckResponse, error) {
	who, a, err := h.act(ctx, req.GetPath())
	if err != nil {
		return nil, err
	}
	if err := h.allows(who, KindValidate); err != nil {
		return nil, err
	}
	switch {
	case req.GetEventId() != "":
		return nil, status.Error(codes.Unimplemented, "what an event says is all that is known of it: leave event_id out")
	case a.ID == "":
		return nil, status.Errorf(codes.InvalidArgument, "a validation needs an id: metadata %s", target.MetaAction)
	}
	got, err := h.do(ctx, a)
	if err != nil {
		return nil, err
	}
	return &healthz.CheckResponse{Status: h.component(req.GetPath(), &got)}, nil
}

// act reads what a validation is asked of.
func (h *Health) act(ctx context.Context, path *types.Path) (who target.Peer, a Act, err error) {
	if who, err = h.Admit(ctx); err != nil {
		return who, a, err
	}
	gpus, _, err := subcomponents([]*types.Path{path})
	if err != nil {
		return who, a, err
	}
	a = Act{ID: meta(ctx, target.MetaAction), Kind: KindValidate, GPUs: gpus, By: who.Name, Level: levelRead}
	if level := meta(ctx, target.MetaLevel); level != "" {
		if a.Level, err = strconv.Atoi(level); err != nil || a.Level < levelRead || a.Level > levelMost {
			return who, a, status.Errorf(codes.InvalidArgument, "level %.20q is none of %d to %d", level, levelRead, levelMost)
		}
	}
	return who, a, nil
}

// Get tells of a validation. One that runs has a status of its own, STATUS_UNSPECIFIED. With
// [target.MetaWould] it tells what Check would test, and refuses what stands against it.
func (h *Health) Get(ctx context.Context, req *healthz.GetRequest) (*healthz.GetResponse, error) {
	who, want, err := h.act(ctx, req.GetPath())
	if err != nil {
		return nil, err
	}
	if meta(ctx, target.MetaWould) != "" {
		names, against, err := h.would(ctx, who, want)
		if err == nil && against != "" {
			err = status.Error(codes.FailedPrecondition, against)
		}
		if err != nil {
			return nil, err
		}
		out := &healthz.ComponentStatus{Path: req.GetPath()}
		for _, n := range names {
			out.Subcomponents = append(out.Subcomponents, &healthz.ComponentStatus{Path: gpuPath(n)})
		}
		return &healthz.GetResponse{Component: out}, nil
	}
	if want.ID == "" {
		report, ok := h.Hand.Reports.Last(want.GPUs, "")
		if !ok {
			return nil, status.Error(codes.NotFound, "no validation has ended here")
		}
		return &healthz.GetResponse{Component: told(req.GetPath(), &report)}, nil
	}
	a, ok := h.Hand.Ledger.Last(func(a *Act) bool { return a.ID == want.ID })
	switch {
	case !ok:
		return nil, status.Errorf(codes.NotFound, "nothing is known of %s", want.ID)
	case a.Kind != KindValidate:
		return nil, status.Errorf(codes.AlreadyExists, "%s is a %s", a.ID, a.Kind)
	}
	if err := unhappy(&a); err != nil {
		return nil, err
	}
	return &healthz.GetResponse{Component: h.component(req.GetPath(), &a)}, nil
}

// component is what became of a validation.
func (h *Health) component(path *types.Path, a *Act) *healthz.ComponentStatus {
	if report, ok := h.Hand.Reports.Last(a.GPUs, a.ID); ok && a.Outcome == Done {
		return told(path, &report)
	}
	return &healthz.ComponentStatus{Path: path, Id: a.ID, Created: timestamppb.New(a.Began)}
}

// told is a report in the terms of the protocol.
func told(path *types.Path, r *Report) *healthz.ComponentStatus {
	of := func(path *types.Path, r *Report) *healthz.ComponentStatus {
		s := healthz.Status_STATUS_UNHEALTHY
		if r.Sound() {
			s = healthz.Status_STATUS_HEALTHY
		}
		return &healthz.ComponentStatus{Path: path, Status: s, Id: r.ID, Created: timestamppb.New(r.Ended)}
	}
	out := of(path, r)
	out.Artifacts = []*healthz.ArtifactHeader{header(r)}
	for _, n := range r.GPUs {
		one := r.on(int(n))
		out.Subcomponents = append(out.Subcomponents, of(gpuPath(fmt.Sprintf("gpu%d", n)), &one))
	}
	return out
}

func gpuPath(name string) *types.Path {
	return &types.Path{Elem: []*types.PathElem{{Name: "gpus"}, {Name: "gpu", Key: map[string]string{"name": name}}}}
}

// header describes the artifact of a report.
func header(r *Report) *healthz.ArtifactHeader {
	b, _ := json.Marshal(r) // of strings and numbers
	return &healthz.ArtifactHeader{Id: r.ID, ArtifactType: &healthz.ArtifactHeader_File{File: &healthz.FileArtifactType{
		Name: "validation-" + r.ID + ".json", Mimetype: "application/json", Size: int64(len(b)),
	}}}
}

// chunk is how much of an artifact a message holds, in bytes.
const chunk = 64 << 10

// Artifact sends a report as JSON.
func (h *Health) Artifact(req *healthz.ArtifactRequest, to grpc.ServerStreamingServer[healthz.ArtifactResponse]) error {
	if _, err := h.Admit(to.Context()); err != nil {
		return err
	}
	report, ok := h.Hand.Reports.Last(nil, req.GetId())
	if !ok || req.GetId() == "" {
		return status.Errorf(codes.NotFound, "the last reports of no GPU are of %.80q", req.GetId())
	}
	if err := to.Send(&healthz.ArtifactResponse{Contents: &healthz.ArtifactResponse_Header{Header: header(&report)}}); err != nil {
		return err
	}
	b, err := json.Marshal(report)
	if err != nil {
		return err
	}
	for r := bytes.NewBuffer(b); r.Len() > 0; {
		if err := to.Send(&healthz.ArtifactResponse{Contents: &healthz.ArtifactResponse_Bytes{Bytes: slices.Clone(r.Next(chunk))}}); err != nil {
			return err
		}
	}
	return to.Send(&healthz.ArtifactResponse{Contents: &healthz.ArtifactResponse_Trailer{Trailer: &healthz.ArtifactTrailer{}}})
}
