package target

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	gpb "github.com/openconfig/gnmi/proto/gnmi"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// Version is the version of the gNMI specification that Capabilities tells.
const Version = "0.10.0"

// Config says what a server tells, to whom, and how much of it.
type Config struct {
	Models []*gpb.ModelData
	Access Access
	// Log is told as list entries; nil has none.
	Log Log
	// Set applies the values of a Set, all or none; nil refuses every Set.
	Set func(ctx context.Context, peer Peer, values []Value) error

	MinSample     time.Duration // the least interval of samples and heartbeats
	DefaultSample time.Duration // where the target chooses
	Subscribers   int           // streams at a time; one peer has a quarter of them
	Subscriptions int           // in one stream
	Stall         time.Duration // how long a reader may leave a message unread
}

// DefaultConfig returns bounds that suit a machine that has other things to do.
func DefaultConfig() Config {
	return Config{MinSample: time.Second, DefaultSample: 10 * time.Second, Subscribers: 32, Subscriptions: 64, Stall: time.Minute}
}

// Validate names the first value that makes no sense.
func (c *Config) Validate() error {
	switch {
	case c.MinSample < 10*time.Millisecond || c.DefaultSample < c.MinSample:
		return errors.New("min_sample must be at least 10ms and at most the default interval")
	case c.Subscribers < 4 || c.Subscriptions < 1:
		return errors.New("at least 4 subscribers and 1 subscription must be allowed")
	case c.Stall <= 0:
		return errors.New("stall must be positive")
	}
	return nil
}

// Value is a leaf of a Set.
type Value struct {
	Path  string // absolute, in the notation of gNMI
	Value *gpb.TypedValue
}

// Server tells of a tree and of a log. Register it with gpb.RegisterGNMIServer.
type Server struct {
	gpb.UnimplementedGNMIServer

	cfg  Config
	tree *Tree

	mu      sync.Mutex
	streams map[string]int // by peer
	total   int
}

// NewServer returns the target of a tree.
func NewServer(t *Tree, cfg Config) (*Server, error) {
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	return &Server{cfg: cfg, tree: t, streams: map[string]int{}}, nil
}

// enter counts a stream of a peer. A peer that takes all it can get leaves the rest to
// the others.
func (s *Server) enter(p Peer) (leave func(), err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if each := max(1, s.cfg.Subscribers/4); s.streams[p.Name] >= each {
		return nil, status.Errorf(codes.ResourceExhausted, "%s has %d subscriptions open, which is all that one peer may have", p.Name, each)
	}
	if s.total >= s.cfg.Subscribers {
		return nil, status.Errorf(codes.ResourceExhausted, "%d subscriptions are open, which is all that there may be", s.total)
	}
	s.streams[p.Name]++
	s.total++
	return func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.total--
		if s.streams[p.Name]--; s.streams[p.Name] == 0 {
			delete(s.streams, p.Name)
		}
	}, nil
}

// Capabilities tells the models and encodings.
func (s *Server) Capabilities(ctx context.Context, _ *gpb.CapabilityRequest) (*gpb.CapabilityResponse, error) {
	if _, err := s.cfg.Access.Admit(ctx); err != nil {
		return nil, err
	}
	return &gpb.CapabilityResponse{SupportedModels: s.cfg.Models, SupportedEncodings: encodings, GNMIVersion: Version}, nil
}

// asked checks the encoding and the models of a request.
func (s *Server) asked(enc gpb.Encoding, models []*gpb.ModelData) error {
	if !slices.Contains(encodings, enc) {
		return status.Errorf(codes.Unimplemented, "encoding %s is not supported: use PROTO, JSON_IETF, JSON or ASCII", enc)
	}
	for _, m := range models {
		if !slices.ContainsFunc(s.cfg.Models, func(have *gpb.ModelData) bool { return have.GetName() == m.GetName() }) {
			return status.Errorf(codes.InvalidArgument, "model %q is not supported", m.GetName())
		}
	}
	return nil
}

// maxGet bounds the records of a log in one answer; Subscribe tells the rest.
const maxGet = 256

// Get reads the leaves at and below each path. A path that names nothing is NotFound.
func (s *Server) Get(ctx context.Context, req *gpb.GetRequest) (*gpb.GetResponse, error) {
	if _, err := s.cfg.Access.Admit(ctx); err != nil {
		return nil, err
	}
	if err := s.asked(req.GetEncoding(), req.GetUseModels()); err != nil {
		return nil, err
	}
	if n := len(req.GetPath()); n > s.cfg.Subscriptions {
		return nil, status.Errorf(codes.InvalidArgument, "%d paths are more than %d", n, s.cfg.Subscriptions)
	}
	paths := req.GetPath()
	if len(paths) == 0 {
		paths = []*gpb.Path{{}}
	}
	out := &gpb.GetResponse{}
	for _, p := range paths {
		query, err := resolve(req.GetPrefix(), p)
		if err != nil {
			return nil, err
		}
		v := view{query: query}
		readings := s.tree.look(&v, false, nil)
		if req.GetType() == gpb.GetRequest_CONFIG || req.GetType() == gpb.GetRequest_STATE || req.GetType() == gpb.GetRequest_OPERATIONAL {
			readings = slices.DeleteFunc(readings, func(r reading) bool {
				return isConfig(r.path) != (req.GetType() == gpb.GetRequest_CONFIG)
			})
		}
		told := prefixOf(req.GetPrefix())
		found := notifications(told, req.GetEncoding(), readings)
		if req.GetType() != gpb.GetRequest_CONFIG && s.cfg.Log != nil && below(query, logPath) {
			records, err := s.cfg.Log.Read(0, maxGet)
			if err != nil {
				return nil, status.Error(codes.Unavailable, err.Error())
			}
			for _, r := range records {
				if n := r.notification(query, told, req.GetEncoding()); n != nil {
					found = append(found, n)
				}
			}
		}
		if len(found) == 0 {
			return nil, status.Errorf(codes.NotFound, "path %s has no data", pathString(query))
		}
		out.Notification = append(out.Notification, found...)
	}
	return out, nil
}

// isConfig reports whether a leaf is a setting: it stands in a container of that name.
func isConfig(p *gpb.Path) bool {
	return slices.ContainsFunc(p.GetElem(), func(e *gpb.PathElem) bool { return e.GetName() == "config" })
}

// prefixOf is what the prefix of an answer repeats of that of the request (section
// 2.2.2.1); its paths are absolute.
func prefixOf(p *gpb.Path) *gpb.Path {
	if p.GetTarget() == "" && p.GetOrigin() == "" {
		return nil
	}
	return &gpb.Path{Origin: p.GetOrigin(), Target: p.GetTarget()}
}

// maxValues bounds a Set.
const maxValues = 64

// Set hands the values of updates and replaces to who applies them. Nothing can be
// deleted. Who has not shown who it is sets nothing.
func (s *Server) Set(ctx context.Context, req *gpb.SetRequest) (*gpb.SetResponse, error) {
	who, err := s.cfg.Access.Admit(ctx)
	if err != nil {
		return nil, err
	}
	switch {
	case s.cfg.Set == nil:
		return nil, status.Error(codes.Unimplemented, "this target is read only: Set is not supported")
	case !who.Known:
		return nil, status.Error(codes.PermissionDenied, "Set needs a client certificate, or metadata username and password")
	case len(req.GetDelete()) > 0 || len(req.GetUnionReplace()) > 0:
		return nil, status.Error(codes.InvalidArgument, "nothing here can be deleted")
	}
	updates := slices.Concat(req.GetReplace(), req.GetUpdate())
	if len(updates) == 0 || len(updates) > maxValues {
		return nil, status.Errorf(codes.InvalidArgument, "a Set has 1 to %d values", maxValues)
	}
	values := make([]Value, 0, len(updates))
	out := &gpb.SetResponse{Prefix: req.GetPrefix(), Timestamp: time.Now().UnixNano()}
	for i, u := range updates {
		path, err := resolve(req.GetPrefix(), u.GetPath())
		if err != nil {
			return nil, err
		}
		values = append(values, Value{Path: pathString(path), Value: u.GetVal()})
		op := gpb.UpdateResult_UPDATE
		if i < len(req.GetReplace()) {
			op = gpb.UpdateResult_REPLACE
		}
		out.Response = append(out.Response, &gpb.UpdateResult{Path: u.GetPath(), Op: op})
	}
	if err := s.cfg.Set(ctx, who, values); err != nil {
		if _, ok := status.FromError(err); ok {
			return nil, err
		}
		return nil, status.Error(codes.FailedPrecondition, fmt.Sprint(err))
	}
	return out, nil
}
