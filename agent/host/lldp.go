package host

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"
)

// maxAnswer bounds what lldpcli may say.
const maxAnswer = 1 << 20

// lldp asks lldpd, where it runs, for the neighbours of interfaces, by its own client:
// the form of its socket changes with its version.
type lldp struct {
	m       *machine
	list    *list
	command string
}

func newLLDP(m *machine) source {
	return &lldp{m: m, list: newList(m, "/host/lldp-neighbor"), command: "lldpcli"}
}

// neighbour is the one of an interface.
type neighbour struct {
	Interface string `json:"name"`
	Chassis   []struct {
		ID   values `json:"id"`
		Name values `json:"name"`
		IP   values `json:"mgmt-ip"`
	} `json:"chassis"`
	Port []struct {
		ID    values `json:"id"`
		Descr values `json:"descr"`
	} `json:"port"`
}

// values are how json0 of lldpcli(8) writes any field.
type values []struct {
	Value string `json:"value"`
}

// first returns the first value that people can read.
func (v values) first() string {
	for _, x := range v {
		if s := strings.TrimSpace(x.Value); plain(s) {
			return s
		}
	}
	return ""
}

func (l *lldp) read(at time.Time) {
	neighbours, err := l.ask()
	if err != nil {
		if l.m.ctx.Err() != nil {
			return
		}
		l.m.fault(err)
	}
	l.list.begin()
	told := map[string]bool{}
	for _, n := range neighbours {
		if !told[n.Interface] && plain(n.Interface) { // of several the first
			told[n.Interface] = true
			l.neighbour(n)
		}
	}
	l.list.end()
	l.list.write(at)
}

func (l *lldp) neighbour(n neighbour) {
	leaves := [][2]string{{"chassis-id", ""}, {"system-name", ""}, {"management-address", ""}, {"port-id", ""}, {"port-description", ""}}
	if len(n.Chassis) > 0 {
		c := n.Chassis[0]
		leaves[0][1], leaves[1][1], leaves[2][1] = c.ID.first(), c.Name.first(), c.IP.first()
	}
	if len(n.Port) > 0 {
		p := n.Port[0]
		leaves[3][1], leaves[4][1] = p.ID.first(), p.Descr.first()
	}
	it, fresh := l.list.entry(n.Interface, fmt.Sprint(leaves), "", nil)
	if it == nil || !fresh {
		return
	}
	for _, leaf := range leaves {
		l.m.text(it, leaf[0], leaf[1])
	}
}

// ask runs lldpcli. A machine without lldpd has no neighbours to tell.
func (l *lldp) ask() ([]neighbour, error) {
	socket := filepath.Join(l.m.cfg.Run, "lldpd.socket")
	if _, err := os.Stat(socket); errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	ctx, done := context.WithTimeout(l.m.ctx, 5*time.Second)
	defer done()
	cmd := exec.CommandContext(ctx, l.command, "-u", socket, "-f", "json0", "show", "neighbors")
	var out, said bounded
	cmd.Stdout, cmd.Stderr, cmd.WaitDelay = &out, &said, time.Second
	err := cmd.Run()
	switch {
	case errors.Is(err, exec.ErrNotFound), errors.Is(err, fs.ErrNotExist):
		return nil, errors.New("lldpd runs, and its client lldpcli is not installed here")
	case ctx.Err() != nil:
		return nil, errors.New("lldpcli does not answer")
	case err != nil:
		line, _, _ := bytes.Cut(said.kept.Bytes(), []byte{'\n'})
		return nil, fmt.Errorf("lldpcli: %w: %q", err, line[:min(len(line), 200)])
	case out.full:
		return nil, fmt.Errorf("lldpcli: %w: longer than %d bytes", errMalformed, maxAnswer)
	}
	return neighbours(out.kept.Bytes())
}

// neighbours reads what lldpcli says as json0; without a neighbour it says no interface.
func neighbours(b []byte) (out []neighbour, err error) {
	var all struct {
		LLDP []struct {
			Interface []neighbour `json:"interface"`
		} `json:"lldp"`
	}
	if json.Unmarshal(b, &all) != nil {
		return nil, fmt.Errorf("lldpcli: %w", unexpected("JSON as of json0", bytes.TrimSpace(b)))
	}
	for _, l := range all.LLDP {
		out = append(out, l.Interface...)
	}
	return out, nil
}

// bounded keeps the begin of what is written. It is no [bytes.Buffer] itself, which
// would read all.
type bounded struct {
	kept bytes.Buffer
	full bool
}

// Write implements [io.Writer].
func (b *bounded) Write(p []byte) (int, error) {
	room := min(maxAnswer-b.kept.Len(), len(p))
	b.full = b.full || room < len(p)
	b.kept.Write(p[:room])
	return len(p), nil
}
