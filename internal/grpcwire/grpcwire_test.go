package grpcwire_test

import (
	"bytes"
	"context"
	"crypto/rand"
	"errors"
	"io"
	"net"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	gpb "github.com/openconfig/gnmi/proto/gnmi"
	"go.uber.org/goleak"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"auspex/internal/grpcwire"
	"auspex/internal/waittest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// server is grpc-go's, with a gNMI target of few words.
type server struct {
	gpb.UnimplementedGNMIServer

	answers [][]byte // of a subscription
	end     error

	mu     sync.Mutex
	shown  metadata.MD
	within time.Duration
}

func (s *server) Get(ctx context.Context, _ *gpb.GetRequest) (*gpb.GetResponse, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.shown, _ = metadata.FromIncomingContext(ctx)
	if at, ok := ctx.Deadline(); ok {
		s.within = time.Until(at)
	}
	_ = grpc.SetTrailer(ctx, metadata.Pairs("a-key", "of a trailer"))
	return &gpb.GetResponse{Notification: []*gpb.Notification{{Timestamp: 7}}}, nil
}

func (*server) Set(context.Context, *gpb.SetRequest) (*gpb.SetResponse, error) {
	return nil, status.Error(codes.PermissionDenied, "not you: 100 % – never")
}

func (s *server) Subscribe(stream gpb.GNMI_SubscribeServer) error {
	if _, err := stream.Recv(); err != nil {
		return err
	}
	for _, a := range s.answers {
		if err := stream.Send(response(a)); err != nil {
			return err
		}
	}
	if s.end != nil {
		return s.end
	}
	_, err := stream.Recv()
	return err
}

func response(data []byte) *gpb.SubscribeResponse {
	return &gpb.SubscribeResponse{Response: &gpb.SubscribeResponse_Update{Update: &gpb.Notification{Update: []*gpb.Update{{
		Val: &gpb.TypedValue{Value: &gpb.TypedValue_BytesVal{BytesVal: data}},
	}}}}}
}

// serve starts the server, and returns it with a connection.
func serve(t testing.TB, s *server, o ...grpc.ServerOption) (*grpc.Server, net.Conn) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	g := grpc.NewServer(o...)
	gpb.RegisterGNMIServer(g, s)
	done := make(chan struct{})
	go func() { defer close(done); _ = g.Serve(l) }()
	t.Cleanup(func() { g.Stop(); <-done })
	conn, err := net.Dial("tcp", l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	return g, conn
}

func greet(t testing.TB, conn net.Conn, o grpcwire.Options) *grpcwire.Conn {
	t.Helper()
	o.Authority, o.MaxMessage = "target", max(o.MaxMessage, 4<<20)
	c, err := grpcwire.New(conn, o)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func begin(t testing.TB, c *grpcwire.Conn, method string, m proto.Message, open bool) uint32 {
	t.Helper()
	raw, err := proto.Marshal(m)
	if err != nil {
		t.Fatal(err)
	}
	id, err := c.Begin(grpcwire.Request{
		Method: "/gnmi.gNMI/" + method, Message: raw, Open: open, Timeout: time.Minute, Metadata: []string{"username", "admin", "Word-bin", "\x00\xff"},
	})
	if err != nil {
		t.Fatal(err)
	}
	return id
}

func next(t testing.TB, c *grpcwire.Conn) grpcwire.Event {
	t.Helper()
	ev, err := c.Next()
	if err != nil {
		t.Fatal(err)
	}
	return ev
}

func TestACallIsAnswered(t *testing.T) {
	s := &server{}
	_, conn := serve(t, s)
	c := greet(t, conn, grpcwire.Options{})
	id := begin(t, c, "Get", &gpb.GetRequest{}, false)
	ev := next(t, c)
	var got gpb.GetResponse
	if err := proto.Unmarshal(ev.Message, &got); err != nil || ev.Call != id || got.GetNotification()[0].GetTimestamp() != 7 {
		t.Errorf("%+v: %v %v", ev, &got, err)
	}
	if ev = next(t, c); ev.Call != id || ev.Done.Code() != codes.OK {
		t.Errorf("it ends with %+v", ev)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	want := metadata.MD{"username": {"admin"}, "word-bin": {"\x00\xff"}, ":authority": {"target"}, "content-type": {"application/grpc"}, "user-agent": {"auspex"}}
	delete(s.shown, "grpc-accept-encoding")
	if diff := cmp.Diff(want, s.shown); diff != "" {
		t.Error(diff)
	}
	if s.within < 50*time.Second || s.within > time.Minute {
		t.Errorf("the server has %s", s.within)
	}
}

func TestWhatTheServerRefusesIsSaid(t *testing.T) {
	_, conn := serve(t, &server{})
	c := greet(t, conn, grpcwire.Options{})
	set, none := begin(t, c, "Set", &gpb.SetRequest{}, false), begin(t, c, "None", &gpb.SetRequest{}, false)
	got := map[uint32]string{}
	for range 2 {
		ev := next(t, c)
		got[ev.Call] = ev.Done.Err().Error()
	}
	want := map[uint32]string{
		set: "rpc error: code = PermissionDenied desc = not you: 100 % – never", none: "rpc error: code = Unimplemented desc = unknown method None for service gnmi.gNMI",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}

// Messages of all sizes, about the bounds of frames, windows and buffers, come whole and in order,
// while other calls come and go.
func TestAStreamIsReadWhole(t *testing.T) {
	s := &server{end: status.Error(codes.Aborted, "enough")}
	for _, n := range []int{0, 1, 4, 5, 100, 4000, 4096, 16<<10 - 20, 16 << 10, 16<<10 + 1, 64 << 10, 1 << 20, 3} {
		a := make([]byte, n)
		_, _ = rand.Read(a)
		s.answers = append(s.answers, a, []byte{byte(n)}, nil)
	}
	for name, wrap := range map[string]func(net.Conn) net.Conn{
		"a connection":     func(c net.Conn) net.Conn { return c },
		"in chunks":        func(c net.Conn) net.Conn { return &chunks{Conn: c, size: 32 << 10} },
		"in pieces":        func(c net.Conn) net.Conn { return &chunks{Conn: c, size: 7} },
		"in a wide window": func(c net.Conn) net.Conn { return c },
	} {
		t.Run(name, func(t *testing.T) {
			_, conn := serve(t, s, grpc.WriteBufferSize(0))
			idle := 0
			o := grpcwire.Options{Idle: func() error { idle++; return nil }}
			if name == "in a wide window" {
				o.Window = 256 << 10
			}
			c := greet(t, wrap(conn), o)
			id := begin(t, c, "Subscribe", &gpb.SubscribeRequest{}, true)
			for i := 0; i < len(s.answers); {
				ev := next(t, c)
				if ev.Call != id || ev.Done != nil {
					continue
				}
				want, err := proto.Marshal(response(s.answers[i]))
				if err != nil {
					t.Fatal(err)
				}
				if !bytes.Equal(ev.Message, want) {
					t.Fatalf("message %d has %d bytes, want %d", i, len(ev.Message), len(want))
				}
				if i++; i%5 == 0 {
					begin(t, c, "Get", &gpb.GetRequest{}, false)
				}
			}
			for {
				if ev := next(t, c); ev.Call == id {
					if ev.Done.Code() != codes.Aborted || ev.Done.Message() != "enough" {
						t.Errorf("it ends with %v", ev.Done)
					}
					break
				}
			}
			if idle == 0 {
				t.Error("it never waited")
			}
		})
	}
}

// chunks hands out what it reads in chunks.
type chunks struct {
	net.Conn
	size int
	mu   sync.Mutex
	held int
}

// Chunk implements [grpcwire.Chunker].
func (c *chunks) Chunk() ([]byte, error) {
	b := make([]byte, c.size)
	n, err := c.Conn.Read(b)
	if n == 0 {
		return nil, err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.held++
	runtime.AddCleanup(&b[0], func(*chunks) {
		c.mu.Lock()
		defer c.mu.Unlock()
		c.held--
	}, nil)
	return b[:n], nil
}

// Thousands wait at a time, and what waits holds nothing of what came.
func TestWhatWaitsHoldsNothing(t *testing.T) {
	s := &server{answers: [][]byte{make([]byte, 10<<10), make([]byte, 20<<10)}}
	_, conn := serve(t, s)
	in := &chunks{Conn: conn, size: 32 << 10}
	c := greet(t, in, grpcwire.Options{})
	id := begin(t, c, "Subscribe", &gpb.SubscribeRequest{}, true)
	for range s.answers {
		if ev := next(t, c); ev.Call != id || ev.Done != nil {
			t.Fatalf("%+v", ev)
		}
	}
	done := make(chan error)
	go func() { _, err := c.Next(); done <- err }()
	waittest.For(t, "chunks are held", func() bool {
		runtime.GC()
		in.mu.Lock()
		defer in.mu.Unlock()
		return in.held == 0
	})
	_ = c.Close()
	if err := <-done; status.Code(err) != codes.Unavailable {
		t.Error(err)
	}
}

// echo answers each message of a subscription with one.
type echo struct{ gpb.UnimplementedGNMIServer }

func (echo) Subscribe(stream gpb.GNMI_SubscribeServer) error {
	for {
		if _, err := stream.Recv(); err != nil {
			return err
		}
		if err := stream.Send(&gpb.SubscribeResponse{Response: &gpb.SubscribeResponse_SyncResponse{SyncResponse: true}}); err != nil {
			return err
		}
	}
}

// A call that is open takes more messages, as many as the server makes room for.
func TestMoreMessagesOfACall(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	srv := grpc.NewServer()
	gpb.RegisterGNMIServer(srv, echo{})
	done := make(chan error, 1)
	go func() { done <- srv.Serve(l) }()
	defer func() { srv.Stop(); <-done }()
	conn, err := net.Dial("tcp", l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	c, err := grpcwire.New(conn, grpcwire.Options{Authority: "x", MaxMessage: 1 << 20})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	message, err := proto.Marshal(&gpb.SubscribeRequest{Request: &gpb.SubscribeRequest_Subscribe{Subscribe: &gpb.SubscriptionList{
		Prefix: &gpb.Path{Target: strings.Repeat("x", 8000)},
	}}})
	if err != nil {
		t.Fatal(err)
	}
	call, err := c.Begin(grpcwire.Request{Method: "/gnmi.gNMI/Subscribe", Message: message, Open: true})
	for n := 0; err == nil && n < 40; n++ { // several times the first window
		var ev grpcwire.Event
		if ev, err = c.Next(); err == nil && (ev.Call != call || ev.Done != nil) {
			t.Fatalf("%+v", ev)
		}
		if err == nil {
			err = c.Send(call, message)
		}
	}
	if err != nil {
		t.Fatal(err)
	}
	if err := c.Send(call+2, message); status.Code(err) != codes.FailedPrecondition {
		t.Error(err)
	}
	if err := c.Send(call, make([]byte, 1<<16)); status.Code(err) != codes.ResourceExhausted {
		t.Error(err)
	}
}

func TestAServerThatGoesAwayIsLeft(t *testing.T) {
	g, conn := serve(t, &server{answers: [][]byte{{1}}})
	c := greet(t, conn, grpcwire.Options{})
	begin(t, c, "Subscribe", &gpb.SubscribeRequest{}, true)
	next(t, c)
	g.Stop()
	if _, err := c.Next(); status.Code(err) != codes.Unavailable {
		t.Error(err)
	}
	if _, err := c.Begin(grpcwire.Request{Method: "/gnmi.gNMI/Get"}); status.Code(err) != codes.Unavailable {
		t.Error(err)
	}
}

// RFC 9113, section 6.7: the same eight bytes, with the flag ACK; and an answer is not answered.
func TestAPingIsAnsweredOnce(t *testing.T) {
	ping := func(flags byte, word string) string { return string([]byte{0, 0, 8, 6, flags, 0, 0, 0, 0}) + word }
	s := &script{said: strings.NewReader(ping(0, "are you?") + ping(1, "I am not"))}
	c := greet(t, s, grpcwire.Options{})
	s.heard.Reset()
	if _, err := c.Next(); status.Code(err) != codes.Unavailable {
		t.Error(err)
	}
	if got, want := s.heard.String(), ping(1, "are you?"); got != want {
		t.Errorf("the server hears %q, want %q", got, want)
	}
}

func TestAMessageThatIsTooLargeIsRefused(t *testing.T) {
	_, conn := serve(t, &server{answers: [][]byte{make([]byte, 5<<20)}})
	c := greet(t, conn, grpcwire.Options{})
	begin(t, c, "Subscribe", &gpb.SubscribeRequest{}, true)
	if _, err := c.Next(); status.Code(err) != codes.ResourceExhausted || !strings.Contains(err.Error(), "more than the 4194304 that are taken") {
		t.Error(err)
	}
}

var errTired = errors.New("tired")

func TestTheErrorOfIdleIsTheEnd(t *testing.T) {
	_, conn := serve(t, &server{})
	c := greet(t, conn, grpcwire.Options{Idle: func() error { return errTired }})
	for range 2 {
		if _, err := c.Next(); !errors.Is(err, errTired) {
			t.Error(err)
		}
	}
}

// script is a server whose words are fixed.
type script struct {
	net.Conn
	said  io.Reader
	heard bytes.Buffer
}

func (s *script) Write(b []byte) (int, error) { return s.heard.Write(b) }
func (s *script) Read(b []byte) (int, error)  { return s.said.Read(b) }

func FuzzAServerMaySayAnything(f *testing.F) {
	var spoken bytes.Buffer
	s := &server{answers: [][]byte{{1, 2, 3}, make([]byte, 100)}, end: status.Error(codes.Aborted, "enough")}
	_, conn := serve(f, s)
	c := greet(f, &recorder{Conn: conn, to: &spoken}, grpcwire.Options{})
	begin(f, c, "Subscribe", &gpb.SubscribeRequest{}, true)
	for ev := (grpcwire.Event{}); ev.Done == nil; {
		ev = next(f, c)
	}
	f.Add(spoken.Bytes())
	f.Add([]byte("HTTP/1.1 400 Bad Request\r\n\r\n"))
	f.Add([]byte{0, 0, 8, 7, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0})
	f.Fuzz(func(t *testing.T, said []byte) {
		c := greet(t, &script{said: bytes.NewReader(said)}, grpcwire.Options{})
		begin(t, c, "Subscribe", &gpb.SubscribeRequest{}, true)
		for {
			ev, err := c.Next()
			if err != nil {
				if code := status.Code(err); code != codes.Unavailable && code != codes.Internal && code != codes.ResourceExhausted {
					t.Errorf("%v", err)
				}
				return
			}
			if len(ev.Message) > len(said) || ev.Call != 1 {
				t.Errorf("%+v", ev)
			}
		}
	})
}

type recorder struct {
	net.Conn
	to *bytes.Buffer
}

func (r *recorder) Read(b []byte) (int, error) {
	n, err := r.Conn.Read(b)
	r.to.Write(b[:n])
	return n, err
}
