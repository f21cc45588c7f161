package app

import (
	"fmt"
	"io"
	"os"
	"time"
)

// progress tells on a terminal how much of its input a command has read. On
// anything else, and where it would mix with the output, it says nothing.
type progress struct {
	w     io.Writer // nil is silent
	every time.Duration
	last  time.Time
	bytes int64
	shown bool
}

func newProgress(stderr, stdout io.Writer) *progress {
	p := &progress{every: 500 * time.Millisecond, last: time.Now()}
	if terminal(stderr) && !terminal(stdout) {
		p.w = stderr
	}
	return p
}

func terminal(w io.Writer) bool {
	f, ok := w.(*os.File)
	if !ok {
		return false
	}
	st, err := f.Stat()
	return err == nil && st.Mode()&os.ModeCharDevice != 0
}

// reading returns an input that is counted under a name.
func (p *progress) reading(name string, in io.Reader) io.Reader {
	if p.w == nil {
		return in
	}
	return &countedInput{in: in, name: name, p: p}
}

// clear leaves the line to other words.
func (p *progress) clear() {
	if p.shown {
		_, _ = io.WriteString(p.w, "\r\x1b[K")
		p.shown = false
	}
}

// words returns the writer for what else is said meanwhile.
func (p *progress) words(stderr io.Writer) io.Writer {
	if p.w == nil {
		return stderr
	}
	return &clearedOutput{stderr, p}
}

type clearedOutput struct {
	out io.Writer
	p   *progress
}

// Write implements io.Writer.
func (c *clearedOutput) Write(b []byte) (int, error) {
	c.p.clear()
	return c.out.Write(b)
}

type countedInput struct {
	in   io.Reader
	name string
	p    *progress
}

// Read implements io.Reader.
func (c *countedInput) Read(b []byte) (int, error) {
	n, err := c.in.Read(b)
	p := c.p
	p.bytes += int64(n)
	if now := time.Now(); now.Sub(p.last) >= p.every {
		p.last, p.shown = now, true
		fmt.Fprintf(p.w, "\r\x1b[K%s: %.1f MB read", c.name, float64(p.bytes)/1e6)
	}
	return n, err
}
