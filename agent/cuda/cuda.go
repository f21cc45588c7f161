// Package cuda has a GPU work, and checks what it did: a sweep of its memory and a burst of
// computing, through the driver's interface for CUDA (libcuda.so.1, loaded at run time). That
// is done in a process of its own, which is killed when its time is over: a call of the driver
// that does not return holds up nobody else.
package cuda

import (
	"bufio"
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"time"

	"auspex/agent/acts"
)

// Argument makes the program of the agent the process that works (see [Child]).
const Argument = "compute"

// job is what a process is to do, as it reads it.
type job struct {
	Library string        `json:"library"`
	PCI     string        `json:"pci"` // of the GPU
	GPU     int           `json:"gpu"`
	Memory  time.Duration `json:"memory"`
	Burst   time.Duration `json:"burst"`
}

// line is what it says: what it begins, or what a test has found.
type line struct {
	Begins string     `json:"begins,omitempty"`
	Test   *acts.Test `json:"test,omitempty"`
	End    bool       `json:"end,omitempty"`
}

// What a process begins.
const (
	starting  = "start"
	sweeping  = "memory"
	computing = "compute"
)

// Process has GPUs work in processes of a program that calls [Child]; empty is this one.
type Process struct{ Program string }

const (
	// startup is how long the driver may take until a GPU is ready, and to let it go.
	startup = time.Minute
	// death is how long a process may take to end that was killed: one in a call of the kernel does not.
	death = 5 * time.Second
	// maxSaid bounds what is kept of what a process says beside its lines, in bytes.
	maxSaid = 200
)

// Compute implements [acts.Computer].
func (p Process) Compute(ctx context.Context, gpu acts.GPU, v acts.Validation, busy func()) []acts.Test {
	phase := starting
	said := func(result acts.Result, format string, args ...any) acts.Test {
		return acts.Test{Name: phase, GPU: int(gpu.Number), Result: result, Message: fmt.Sprintf(format, args...)}
	}
	limit := startup + v.Memory + 2*v.Burst
	ctx, done := context.WithTimeout(ctx, limit)
	defer done()
	self, err := os.Executable()
	if p.Program == "" && err != nil {
		return []acts.Test{said(acts.Skipped, "this program does not find itself: %v", err)}
	}
	cmd := exec.Command(cmp.Or(p.Program, self), Argument) // killed below: one that does not die must not be waited for
	var words tail
	cmd.Stderr = &words
	in, err1 := cmd.StdinPipe() // it ends with this pipe: this process may be killed at any time
	out, err2 := cmd.StdoutPipe()
	if err := cmp.Or(err1, err2, cmd.Start()); err != nil {
		return []acts.Test{said(acts.Skipped, "no process can be started: %v", err)}
	}
	defer func() { _ = in.Close() }()
	lines, ended := make(chan line), make(chan error, 1)
	go func() {
		defer close(lines)
		if err := json.NewEncoder(in).Encode(job{v.CUDA, gpu.PCI, int(gpu.Number), v.Memory, v.Burst}); err != nil {
			return
		}
		for s := bufio.NewScanner(out); s.Scan(); {
			var l line
			if json.Unmarshal(s.Bytes(), &l) != nil {
				continue
			}
			select {
			case lines <- l:
			case <-ctx.Done():
				return
			}
		}
	}()
	var tests []acts.Test
	end := false
	for reading := true; reading; {
		select {
		case l, ok := <-lines:
			switch {
			case !ok:
				reading = false
			case l.Test != nil:
				tests = append(tests, *l.Test)
			case l.Begins != "":
				if phase = l.Begins; phase == computing {
					busy()
				}
			}
			end = end || l.End
		case <-ctx.Done():
			reading = false
		}
	}
	late := ctx.Err() != nil
	if late || !end {
		_ = cmd.Process.Kill()
	}
	_ = in.Close()
	go func() { ended <- cmd.Wait() }()
	timer := time.NewTimer(death)
	defer timer.Stop()
	select {
	case err = <-ended:
	case <-timer.C:
		_ = cmd.Process.Kill()
		return append(tests, said(acts.Broken, "it did not end within %s, and the process does not even end when it is killed", limit))
	}
	switch {
	case late:
		tests = append(tests, said(acts.Broken, "it did not end within %s, and was killed", limit))
	case !end:
		tests = append(tests, said(acts.Broken, "the process has ended before it had an answer: %v %s", err, words.String()))
	}
	return tests
}

// tail keeps the begin of what is written to it.
type tail struct{ b []byte }

// Write implements [io.Writer].
func (t *tail) Write(b []byte) (int, error) {
	t.b = append(t.b, b[:min(len(b), maxSaid-len(t.b))]...)
	return len(b), nil
}

// String is it in one line.
func (t *tail) String() string { return strings.Join(strings.Fields(string(t.b)), " ") }

// Child does the work that it reads, and says what it found. It ends with what it reads from. It
// returns the code with which the process is to end.
func Child(in io.Reader, out io.Writer) int {
	var j job
	r := bufio.NewReader(in)
	if err := json.NewDecoder(r).Decode(&j); err != nil {
		fmt.Fprintf(os.Stderr, "what is to be done cannot be read: %v\n", err)
		return 2
	}
	go func() {
		_, _ = io.Copy(io.Discard, in)
		os.Exit(1) // who asked is gone, and a call may never return
	}()
	w := &worker{job: j, say: json.NewEncoder(out)}
	w.work()
	_ = w.say.Encode(line{End: true})
	return 0
}
