// Package gnmiclient is what all who read gNMI targets share: the connection, who they
// are, and a stream of messages (gNMI specification, section 3.5).
package gnmiclient

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"math"
	"net"
	"time"

	gpb "github.com/openconfig/gnmi/proto/gnmi"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/keepalive"
	"google.golang.org/grpc/metadata"
)

// Dial returns a connection to a target; it connects with the first call. Without tc it
// is plain text. Messages have at most so many bytes, and a target that does not answer
// a ping within timeout is away.
func Dial(addr string, tc *tls.Config, maxMessage int, timeout time.Duration, more ...grpc.DialOption) (*grpc.ClientConn, error) {
	creds := insecure.NewCredentials()
	if tc != nil {
		creds = credentials.NewTLS(tc)
	}
	return grpc.NewClient("passthrough:///"+addr, append([]grpc.DialOption{
		grpc.WithTransportCredentials(creds), grpc.WithDisableServiceConfig(),
		grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(maxMessage)),
		grpc.WithKeepaliveParams(keepalive.ClientParameters{Time: 30 * time.Second, Timeout: timeout}),
	}, more...)...)
}

// window is how much of a stream through a tunnel is on the way, in bytes.
const window = 64 << 10

// Through is Dial over connections that dial opens through a tunnel, which has shown both ends
// who the other is and watches whether it is there. There are thousands of them: buffers are
// small, and windows do not grow.
func Through(dial func(context.Context) (net.Conn, error), maxMessage int, timeout time.Duration) (*grpc.ClientConn, error) {
	return Dial("tunnel", nil, maxMessage, timeout,
		grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) { return dial(ctx) }),
		grpc.WithKeepaliveParams(keepalive.ClientParameters{Time: math.MaxInt64}),
		grpc.WithStaticStreamWindowSize(window), grpc.WithStaticConnWindowSize(2*window),
		grpc.WithReadBufferSize(4<<10), grpc.WithWriteBufferSize(4<<10),
	)
}

// Secrets resolves the name of a credential.
type Secrets interface {
	Secret(ctx context.Context, ref string) (user, password string, err error)
}

// As returns a context whose calls show a credential (gNMI authentication
// specification); without one, or without secrets, they show none.
func As(ctx context.Context, credential string, secrets Secrets) (context.Context, error) {
	shown, err := Shown(ctx, credential, secrets)
	if err != nil {
		return ctx, err
	}
	return metadata.AppendToOutgoingContext(ctx, shown...), nil
}

// Shown is the metadata of calls that show a credential: names and values in turn.
func Shown(ctx context.Context, credential string, secrets Secrets) ([]string, error) {
	if credential == "" || secrets == nil {
		return nil, nil
	}
	user, password, err := secrets.Secret(ctx, credential)
	if err != nil {
		return nil, fmt.Errorf("credential %s: %w", credential, err)
	}
	return []string{"username", user, "password", password}, nil
}

// Message is what a stream brings; with an error it is the last.
type Message struct {
	*gpb.SubscribeResponse
	Err error
}

// Stream subscribes. So many messages wait; then the target is slowed down. The
// caller calls end, which returns when nothing of the stream runs any more.
func Stream(ctx context.Context, client gpb.GNMIClient, req *gpb.SubscribeRequest, waiting int) (messages <-chan Message, end func(), err error) {
	ctx, cancel := context.WithCancel(ctx)
	stream, err := client.Subscribe(ctx)
	if err == nil {
		if err = stream.Send(req); errors.Is(err, io.EOF) {
			err = nil // Recv says why
		}
	}
	if err != nil {
		cancel()
		return nil, nil, fmt.Errorf("subscribe: %w", err)
	}
	out, done := make(chan Message, waiting), make(chan struct{})
	go func() {
		defer close(done)
		for {
			res, err := stream.Recv()
			select {
			case out <- Message{res, err}:
			case <-ctx.Done():
				return
			}
			if err != nil {
				return
			}
		}
	}()
	return out, func() { cancel(); <-done }, nil
}
