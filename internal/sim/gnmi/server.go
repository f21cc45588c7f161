// Package gnmi is the gNMI target of a simulated switch: OpenConfig interfaces,
// optics and platform over Capabilities, Get and Subscribe (gNMI specification
// 0.10.0), answered from the fleet's physical model.
package gnmi

import (
	"context"
	"crypto/subtle"
	"sync/atomic"
	"time"

	gpb "github.com/openconfig/gnmi/proto/gnmi"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"auspex/internal/run"
	"auspex/internal/sim/device"
)

// Version is the version of the gNMI specification that Capabilities tells.
const Version = "0.10.0"

// The limits of sample intervals, in the target's own terms.
const (
	minSample     = 100 * time.Millisecond
	defaultSample = 10 * time.Second // where the target chooses
	counterCheck  = time.Second      // how often ON_CHANGE looks at values that no Watch announces
	muteCheck     = 100 * time.Millisecond
)

// Server answers gNMI for one switch. Register it on a grpc.Server with
// gpb.RegisterGNMIServer. Every call needs the metadata "username" and "password".
type Server struct {
	gpb.UnimplementedGNMIServer

	sw     device.Switch
	cached atomic.Pointer[tree]
}

// NewServer returns the target of a switch.
func NewServer(s device.Switch) *Server { return &Server{sw: s} }

// admit checks the credentials and plays the switch's fault: a mute one lets the
// caller wait until it gives up or the fault ends, a slow one answers after its
// delay.
func (s *Server) admit(ctx context.Context) error {
	if err := s.stall(ctx); err != nil {
		return err
	}
	md, _ := metadata.FromIncomingContext(ctx)
	first := func(key string) string {
		if v := md.Get(key); len(v) > 0 {
			return v[0]
		}
		return ""
	}
	user := first("username")
	if user == "" {
		return status.Error(codes.Unauthenticated, "metadata username and password are required")
	}
	want, ok := s.sw.Password(user)
	if !ok || subtle.ConstantTimeCompare([]byte(want), []byte(first("password"))) != 1 {
		return status.Error(codes.Unauthenticated, "unknown user or wrong password")
	}
	return nil
}

// stall waits while the switch is mute, and for its delay.
func (s *Server) stall(ctx context.Context) error {
	for {
		f := s.sw.Fault()
		d := f.Delay
		if f.Mute {
			d = muteCheck
		}
		if d <= 0 {
			return nil
		}
		if run.Sleep(ctx, d) != nil {
			return status.FromContextError(ctx.Err()).Err()
		}
		if !f.Mute {
			return nil
		}
	}
}

// Capabilities tells the models and encodings.
func (s *Server) Capabilities(ctx context.Context, _ *gpb.CapabilityRequest) (*gpb.CapabilityResponse, error) {
	if err := s.admit(ctx); err != nil {
		return nil, err
	}
	model := func(name, version string) *gpb.ModelData {
		return &gpb.ModelData{Name: name, Organization: "OpenConfig working group", Version: version}
	}
	return &gpb.CapabilityResponse{
		SupportedModels: []*gpb.ModelData{
			model("openconfig-interfaces", "3.7.1"),
			model("openconfig-if-ip", "3.7.0"),
			model("openconfig-network-instance", "4.4.0"),
			model("openconfig-bgp", "9.8.0"),
			model("openconfig-if-ethernet", "2.13.0"),
			model("openconfig-platform", "0.24.0"),
			model("openconfig-platform-transceiver", "0.14.0"),
			model("openconfig-platform-psu", "0.2.1"),
			model("openconfig-platform-fan", "0.1.1"),
			model("openconfig-system", "2.1.0"),
			model("openconfig-lldp", "0.2.1"),
		},
		SupportedEncodings: []gpb.Encoding{gpb.Encoding_JSON_IETF, gpb.Encoding_PROTO, gpb.Encoding_JSON},
		GNMIVersion:        Version,
	}, nil
}

// Set is refused: the switch is read only.
func (s *Server) Set(ctx context.Context, _ *gpb.SetRequest) (*gpb.SetResponse, error) {
	if err := s.admit(ctx); err != nil {
		return nil, err
	}
	return nil, status.Error(codes.Unimplemented, "this switch is read only: Set is not supported")
}

// resolve joins a prefix and a path, and checks their origins.
func resolve(prefix, path *gpb.Path) ([]*gpb.PathElem, error) {
	for _, p := range []*gpb.Path{prefix, path} {
		if o := p.GetOrigin(); o != "" && o != "openconfig" {
			return nil, status.Errorf(codes.InvalidArgument, "origin %q is not supported: use openconfig", o)
		}
		if len(p.GetElement()) > 0 { //nolint:staticcheck // old clients still send it
			return nil, status.Error(codes.InvalidArgument, "path uses the deprecated field element: use elem")
		}
	}
	out := make([]*gpb.PathElem, 0, len(prefix.GetElem())+len(path.GetElem()))
	out = append(append(out, prefix.GetElem()...), path.GetElem()...)
	for _, e := range out {
		if e.GetName() == "" {
			return nil, status.Errorf(codes.InvalidArgument, "path %s has an element without a name", pathString(out))
		}
	}
	return out, nil
}

func checkEncoding(e gpb.Encoding) error {
	switch e {
	case gpb.Encoding_JSON_IETF, gpb.Encoding_PROTO, gpb.Encoding_JSON:
		return nil
	}
	return status.Errorf(codes.Unimplemented, "encoding %s is not supported: use JSON_IETF, PROTO or JSON", e)
}

// Get reads the leaves below each path, one notification for each list entry. An
// unknown path is InvalidArgument; a known one without data is NotFound.
func (s *Server) Get(ctx context.Context, req *gpb.GetRequest) (*gpb.GetResponse, error) {
	if err := s.admit(ctx); err != nil {
		return nil, err
	}
	if err := checkEncoding(req.GetEncoding()); err != nil {
		return nil, err
	}
	snap := s.snapshot()
	t := s.tree(snap)
	out := &gpb.GetResponse{}
	prefix := &gpb.Path{Origin: "openconfig", Target: req.GetPrefix().GetTarget()}
	w := writer{enc: req.GetEncoding(), prefix: prefix, garble: s.sw.Fault().Garble}
	for _, p := range req.GetPath() {
		query, err := resolve(req.GetPrefix(), p)
		if err != nil {
			return nil, err
		}
		groups, known := t.find(query, func(*leaf) bool { return true })
		if !known {
			return nil, status.Errorf(codes.InvalidArgument, "path %s is not in the supported models", pathString(query))
		}
		if req.GetType() == gpb.GetRequest_CONFIG {
			continue // all that is modelled is state
		}
		found := false
		for i := range groups {
			if n := w.notification(&groups[i], snap, false); n != nil {
				out.Notification = append(out.Notification, n)
				found = true
			}
		}
		if !found {
			return nil, status.Errorf(codes.NotFound, "path %s has no data", pathString(query))
		}
	}
	return out, nil
}

// writer makes notifications for one client.
type writer struct {
	enc    gpb.Encoding
	prefix *gpb.Path // origin and target
	garble bool
}

// notification returns the values of a group, or nil when there are none. With
// changed, only those that differ from the last ones sent.
func (w *writer) notification(g *group, snap *snapshot, changed bool) *gpb.Notification {
	var n *gpb.Notification
	for i, j := range g.leaves {
		v := g.object.leaves[j].get(snap, g.object.index)
		if g.last != nil {
			if changed && g.last[i] == v {
				continue
			}
			g.last[i] = v
		}
		if v.kind == kindNone {
			continue
		}
		if n == nil {
			n = &gpb.Notification{
				Timestamp: snap.at,
				Prefix:    &gpb.Path{Origin: w.prefix.Origin, Target: w.prefix.Target, Elem: g.base.Elem},
				Update:    make([]*gpb.Update, 0, len(g.leaves)),
			}
		}
		u := &gpb.Update{Path: g.rel[i], Val: v.encode(w.enc)}
		if w.garble {
			u.Val = &gpb.TypedValue{Value: &gpb.TypedValue_JsonIetfVal{JsonIetfVal: []byte(`{"`)}}
		}
		n.Update = append(n.Update, u)
	}
	return n
}
