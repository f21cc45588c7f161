package bench

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"sync"
	"syscall"
	"time"
)

// PeerCommand is the hidden command of the binary that plays a peer.
const PeerCommand = "bench-peer"

// peerGrace is how long a peer has to end after its input has.
const peerGrace = 3 * time.Second

// Peer is a process that plays a device or a receiver. It is told in JSON lines
// on its standard input and tells on its standard output; it ends with its input.
type Peer struct {
	cmd   *exec.Cmd
	in    io.WriteCloser
	out   *json.Decoder
	raw   *bufio.Reader
	pipe  *os.File
	ended chan error
	once  sync.Once
	err   error
}

// StartPeer starts a peer by its name with its options as one JSON document. It
// is closed when ctx is done, if not before. What goes wrong in it is written to errw.
func StartPeer(ctx context.Context, kind string, options any, errw io.Writer) (*Peer, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, fmt.Errorf("start peer %s: %w", kind, err)
	}
	doc, err := json.Marshal(options)
	if err != nil {
		return nil, fmt.Errorf("start peer %s: %w", kind, err)
	}
	cmd := exec.Command(self, PeerCommand, kind, string(doc))
	cmd.Stderr = errw
	// A Ctrl-C in the terminal is the parent's to pass on, by closing the input.
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	p := &Peer{cmd: cmd, ended: make(chan error, 1)}
	if p.in, err = cmd.StdinPipe(); err != nil {
		return nil, fmt.Errorf("start peer %s: %w", kind, err)
	}
	r, w, err := os.Pipe()
	if err != nil {
		return nil, fmt.Errorf("start peer %s: %w", kind, err)
	}
	cmd.Stdout = w
	err = cmd.Start()
	_ = w.Close()
	if err != nil {
		_ = r.Close()
		return nil, fmt.Errorf("start peer %s: %w", kind, err)
	}
	p.pipe, p.raw = r, bufio.NewReaderSize(r, 1<<20)
	p.out = json.NewDecoder(p.raw)
	go func() {
		p.ended <- cmd.Wait()
	}()
	context.AfterFunc(ctx, func() { _ = p.Close() })
	return p, nil
}

// Send sends a document.
func (p *Peer) Send(v any) error {
	b, err := json.Marshal(v)
	if err == nil {
		_, err = p.in.Write(append(b, '\n'))
	}
	return err
}

// Receive reads the next document. It blocks until there is one or the peer ends.
func (p *Peer) Receive(v any) error {
	if err := p.out.Decode(v); err != nil {
		return fmt.Errorf("read from peer: %w", err)
	}
	return nil
}

// Close ends the peer and waits for it; the error is how it ended.
func (p *Peer) Close() error {
	p.once.Do(func() {
		_ = p.in.Close()
		select {
		case p.err = <-p.ended:
		case <-time.After(peerGrace):
			_ = p.cmd.Process.Kill()
			<-p.ended
			p.err = errors.New("peer had to be killed")
		}
		_ = p.pipe.Close()
	})
	return p.err
}

// peers are the parts that a peer process can play.
var peers = map[string]func(ctx context.Context, options []byte, in *json.Decoder, out *sender) error{
	PeerAgents: agents, PeerAsks: asks, PeerBoards: boards, PeerFill: fill, PeerFrames: frames, PeerKernel: kernel, PeerPages: pages, PeerSwitches: switches, PeerStorm: storm,
}

// RunPeer plays a peer until it has done its part, in ends or ctx is done.
func RunPeer(ctx context.Context, kind, options string, in io.Reader, out io.Writer) error {
	play, ok := peers[kind]
	if !ok {
		return fmt.Errorf("no peer %q", kind)
	}
	return play(ctx, []byte(options), json.NewDecoder(in), &sender{w: out})
}

// sender writes documents one a line; its methods may be called at the same time.
type sender struct {
	mu sync.Mutex
	w  io.Writer
}

func (t *sender) send(v any) error {
	b, err := json.Marshal(v)
	if err != nil {
		return err
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	_, err = t.w.Write(append(b, '\n'))
	return err
}

// until returns a context that ends when the input does.
func until(ctx context.Context, in *json.Decoder) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancel(ctx)
	go func() { // ends with the process at the latest: the input is its own
		for {
			var v json.RawMessage
			if in.Decode(&v) != nil {
				cancel()
				return
			}
		}
	}()
	return ctx, cancel
}
