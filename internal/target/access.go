package target

import (
	"context"
	"crypto/subtle"
	"net"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/peer"
	"google.golang.org/grpc/status"
)

// Access says who may ask. A peer is known by a certificate that its transport has
// verified, by the metadata "username" and "password" (gNMI authentication
// specification), or by having been dialled ([Dialled]).
type Access struct {
	User, Password string // none where User is empty
	// Anonymous lets others read: for a target that listens on loopback alone.
	Anonymous bool
}

// Peer is who asks.
type Peer struct {
	Name  string // a certificate's subject, a user, or an address
	Known bool   // it has shown who it is
}

// Dialled is how a connection is known that this end has asked for, by the name that it has
// verified when it dialled.
type Dialled struct {
	Name     string
	Verified bool
}

// AuthType implements [credentials.AuthInfo].
func (Dialled) AuthType() string { return "dialled" }

// Admit finds who asks, and refuses who may not.
func (a Access) Admit(ctx context.Context) (Peer, error) {
	md, _ := metadata.FromIncomingContext(ctx)
	first := func(key string) string {
		if v := md.Get(key); len(v) > 0 {
			return v[0]
		}
		return ""
	}
	p, _ := peer.FromContext(ctx)
	if a.User != "" && first("username") != "" {
		user := subtle.ConstantTimeCompare([]byte(a.User), []byte(first("username")))
		if user&subtle.ConstantTimeCompare([]byte(a.Password), []byte(first("password"))) != 1 {
			return Peer{}, status.Error(codes.Unauthenticated, "unknown user or wrong password")
		}
		return Peer{Name: "user " + a.User, Known: true}, nil
	}
	if p != nil {
		if d, ok := p.AuthInfo.(Dialled); ok && d.Verified {
			return Peer{Name: "dialled " + d.Name, Known: true}, nil
		}
		if info, ok := p.AuthInfo.(credentials.TLSInfo); ok && len(info.State.VerifiedChains) > 0 {
			return Peer{Name: "certificate " + info.State.VerifiedChains[0][0].Subject.String(), Known: true}, nil
		}
	}
	if !a.Anonymous {
		return Peer{}, status.Error(codes.Unauthenticated, "a client certificate, or metadata username and password, is required")
	}
	name := "nobody"
	if p != nil && p.Addr != nil {
		name = p.Addr.String()
		if host, _, err := net.SplitHostPort(name); err == nil {
			name = host
		}
	}
	return Peer{Name: name}, nil
}
