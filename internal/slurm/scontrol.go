package slurm

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"
)

// Scontrol speaks with the controller through its own command, where there is no slurmrestd. It reads JSON where the
// command writes it (since 21.08, with the plug-in for it), and else one line an object. Its methods may be called
// at the same time.
type Scontrol struct {
	// Command and its first arguments, such as ssh, slurmctl and scontrol. No shell is between, but ssh has one at its
	// other end.
	Command []string
	Timeout time.Duration
	MaxOut  int // bounds what it writes, in bytes; 0 is 64 MiB
}

// ErrCommand says that the command did not do what it should, or wrote what is not understood.
var ErrCommand = errors.New("scontrol")

// single is the name of one node: neither a list, nor ALL, nor an option, nor anything that a shell at the other end
// of ssh would read as its own.
var single = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._-]*$`)

func named(node string) error {
	if !single.MatchString(node) || strings.EqualFold(node, "ALL") || strings.EqualFold(node, "DEFAULT") {
		return fmt.Errorf("%q: %w", node, ErrUnknownNode)
	}
	return nil
}

// capped keeps the first bytes of what is written, and knows of more.
type capped struct {
	bytes.Buffer

	room int
	over bool
}

func (c *capped) Write(p []byte) (int, error) {
	if n := c.room - c.Len(); n < len(p) {
		c.over = true
		_, _ = c.Buffer.Write(p[:max(0, n)])
		return len(p), nil // it may go on: what matters is that it ends
	}
	return c.Buffer.Write(p)
}

// run returns what the command writes. failed is what it says where it ends otherwise than well.
func (s *Scontrol) run(ctx context.Context, args ...string) (out []byte, failed string, err error) {
	if s.Timeout > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, s.Timeout)
		defer cancel()
	}
	most := s.MaxOut
	if most <= 0 {
		most = 64 << 20
	}
	stdout, stderr := &capped{room: most}, &capped{room: 4 << 10}
	argv := slices.Clone(s.Command[1:])
	for _, arg := range args {
		if strings.Contains(arg, " ") && filepath.Base(s.Command[0]) == "ssh" { // which joins what it is given for a shell
			arg = "'" + arg + "'"
		}
		argv = append(argv, arg)
	}
	cmd := exec.CommandContext(ctx, s.Command[0], argv...)
	cmd.Stdout, cmd.Stderr = stdout, stderr
	cmd.Env = append(os.Environ(), "LC_ALL=C", "SLURM_TIME_FORMAT=standard")
	cmd.WaitDelay = time.Second // of what it has left running with its output
	err = cmd.Run()
	exit := (*exec.ExitError)(nil)
	switch {
	case ctx.Err() != nil:
		return nil, "", fmt.Errorf("%w: %w", ErrCommand, ctx.Err())
	case errors.As(err, &exit) && exit.ExitCode() > 0:
		return nil, strings.ToValidUTF8(fmt.Sprintf("%.200s", bytes.TrimSpace(append(stderr.Bytes(), stdout.Bytes()...))), "?"), nil
	case err != nil:
		return nil, "", fmt.Errorf("%w: %w", ErrCommand, err)
	case stdout.over:
		return nil, "", fmt.Errorf("%w: it wrote more than %d bytes", ErrCommand, most)
	}
	return stdout.Bytes(), "", nil
}

// Node reads one node.
func (s *Scontrol) Node(ctx context.Context, name string) (Node, error) {
	if err := named(name); err != nil {
		return Node{}, err
	}
	out, failed, err := s.run(ctx, "--json", "show", "node", name)
	if err != nil {
		return Node{}, err
	}
	var answer struct {
		Nodes  []Node  `json:"nodes"`
		Errors []Error `json:"errors"`
	}
	if failed == "" && json.Unmarshal(out, &answer) == nil {
		for _, e := range answer.Errors {
			return Node{}, fmt.Errorf("%w: show node %s: %s", ErrCommand, name, e)
		}
		for _, n := range answer.Nodes {
			if n.Name == name {
				return n, nil
			}
		}
		return Node{}, fmt.Errorf("%s: %w", name, ErrUnknownNode)
	}
	if out, failed, err = s.run(ctx, "-o", "show", "node", name); err != nil {
		return Node{}, err
	}
	if failed != "" || len(bytes.TrimSpace(out)) == 0 {
		if strings.Contains(failed, "Node "+name+" not found") {
			return Node{}, fmt.Errorf("%s: %w", name, ErrUnknownNode)
		}
		return Node{}, fmt.Errorf("%w: show node %s: %s", ErrCommand, name, failed)
	}
	return nodeLine(name, string(out))
}

var (
	nodeFields = regexp.MustCompile(`^NodeName=(\S+) (?:.* )?State=([A-Z_+*~#$%@!^-]+)(?: |$)`)
	// The reason ends where it is said by whom and when (slurm_sprint_node_table).
	nodeReason = regexp.MustCompile(` Reason=(.*?)(?: \[([^][@ ]+)@[0-9T:-]+\]|$)`)
)

// nodeLine reads a node from its one line.
func nodeLine(name, line string) (Node, error) {
	line = strings.TrimSpace(line)
	// Only before the reason nothing is what people wrote.
	head, _, _ := strings.Cut(line, " Reason=")
	m := nodeFields.FindStringSubmatch(head)
	if strings.Contains(line, "\n") || m == nil || m[1] != name || strings.Count(head, " State=") != 1 {
		return Node{}, fmt.Errorf("%w: what it shows of %s is not understood: %.200q", ErrCommand, name, line)
	}
	n := Node{Name: name, State: Names{m[2]}}
	if r := nodeReason.FindStringSubmatch(line); r != nil {
		n.Reason, n.User = r[1], r[2]
	}
	return n, nil
}

// SetNode asks for a state of a node, DRAIN or RESUME, once. Its errors are those of [Client.SetNode].
func (s *Scontrol) SetNode(ctx context.Context, name, state, reason string) error {
	if _, err := s.Node(ctx, name); err != nil {
		return fmt.Errorf("%w: %w", ErrRefused, err)
	}
	return s.update(ctx, name, state, reason)
}

// refusals are what the controller says when it has not done what was asked (slurm_errno.c).
var refusals = []string{"Invalid node name", "Invalid node state", "Access/permission denied", "Invalid user id", "Requested operation is presently disabled"}

func (s *Scontrol) update(ctx context.Context, name, state, reason string) error {
	args := []string{"update", "NodeName=" + name, "State=" + state}
	if reason != "" {
		args = append(args, "Reason="+plain(reason))
	}
	return s.change(ctx, name, "set "+name+" to "+state, args...)
}

// Reboot asks for the restart of a node by Slurm's RebootProgram, once, when nothing runs there. A drain stays, and its
// reason becomes this one. Its errors are those of [Client.SetNode].
func (s *Scontrol) Reboot(ctx context.Context, name, reason string) error {
	return s.change(ctx, name, "reboot "+name, "reboot", "reason="+plain(reason), name)
}

func (s *Scontrol) change(ctx context.Context, name, what string, args ...string) error {
	if err := named(name); err != nil {
		return fmt.Errorf("%w: %w", ErrRefused, err)
	}
	_, failed, err := s.run(ctx, args...)
	if err == nil && failed != "" {
		err = fmt.Errorf("%w: %s", ErrCommand, failed)
		if slices.ContainsFunc(refusals, func(r string) bool { return strings.Contains(failed, r) }) {
			err = fmt.Errorf("%w: %s", ErrRefused, failed)
		}
	}
	if err != nil {
		return fmt.Errorf("%s: %w", what, err)
	}
	return nil
}

// plain is a reason without what would end its line, or what a shell at the other end of ssh would read as its own.
func plain(reason string) string {
	return strings.Map(func(r rune) rune {
		switch {
		case r < ' ' || r == 0x7f || strings.ContainsRune("\"'`$\\;&|<>(){}*?!~#[]", r):
			return '_'
		}
		return r
	}, reason)
}

var (
	jobID     = regexp.MustCompile(`^JobId=(\d+) `)
	jobUser   = regexp.MustCompile(` UserId=([^ (]+)\(`)
	jobStates = regexp.MustCompile(` JobState=([A-Z_]+)`)
	jobNodes  = regexp.MustCompile(` NodeList=(\S+)`)
)

// Running returns the jobs that have a node now, as [Client.Running] does. In the lines of older versions a name can
// look like a field: a job that may have the node by any of them has it.
func (s *Scontrol) Running(ctx context.Context, node string) ([]Job, error) {
	if err := named(node); err != nil {
		return nil, err
	}
	out, failed, err := s.run(ctx, "--json", "show", "jobs")
	if err != nil {
		return nil, err
	}
	var answer struct {
		Jobs   []Job   `json:"jobs"`
		Errors []Error `json:"errors"`
	}
	if failed == "" && json.Unmarshal(out, &answer) == nil {
		for _, e := range answer.Errors {
			return nil, fmt.Errorf("%w: show jobs: %s", ErrCommand, e)
		}
		return having(answer.Jobs, node)
	}
	if out, failed, err = s.run(ctx, "-o", "show", "jobs"); err != nil {
		return nil, err
	}
	if failed != "" || len(bytes.TrimSpace(out)) == 0 { // where there are none, it says so
		return nil, fmt.Errorf("%w: show jobs: %s", ErrCommand, failed)
	}
	var jobs []Job
	for line := range strings.Lines(string(out)) {
		line = strings.TrimSpace(line)
		if line == "" || line == "No jobs in the system" {
			continue
		}
		id, user := jobID.FindStringSubmatch(line), jobUser.FindStringSubmatch(line)
		states, nodes := jobStates.FindAllStringSubmatch(line, -1), jobNodes.FindAllStringSubmatch(line, -1)
		if id == nil || user == nil || states == nil {
			return nil, fmt.Errorf("%w: what it shows of a job is not understood: %.200q", ErrCommand, line)
		}
		n, err := strconv.ParseInt(id[1], 10, 64)
		if err != nil {
			return nil, fmt.Errorf("%w: the number of a job: %w", ErrCommand, err)
		}
		j := Job{ID: Number{N: n, Set: true}, User: user[1]}
		for _, st := range states {
			j.State = append(j.State, st[1])
		}
		var list []string
		for _, l := range nodes {
			if l[1] != "(null)" {
				list = append(list, l[1])
			}
		}
		j.Nodes = strings.Join(list, ",")
		jobs = append(jobs, j)
	}
	return having(jobs, node)
}
