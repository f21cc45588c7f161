package ipmitest

import (
	"bytes"
	"context"
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"
)

// Sim is ipmi_sim of OpenIPMI: a controller that shares no code with our client.
// User admin, password secret; cipher suite 3 is its best.
type Sim struct {
	Addr string

	t   testing.TB
	dir string
}

// chassis plays the board behind ipmi_sim: what it is, is a file each, and what it is asked for is
// written down and takes place when the test lets it.
const chassis = `#!/bin/sh
cd "$1" || exit 1
op=$2
shift 2
case $op in
get)
	for what in "$@"; do
		case $what in
		power | boot) echo "$what:$(cat "$what")" ;;
		*) echo "$what:default" ;;
		esac
	done
	;;
set)
	echo "$*" >>asked
	;;
esac
`

const emulator = `mc_setbmc 0x20
mc_add 0x20 0 no-device-sdrs 0x23 9 8 0x9f 0x1291 0xf02 persist_sdr
sel_enable 0x20 1000 0x0a
%s
mc_enable 0x20
`

const lan = `name "sim"
set_working_mc 0x20
  startlan 1
    addr %s %s
    priv_limit admin
    allowed_auths_callback none md2 md5 straight
    allowed_auths_user none md2 md5 straight
    allowed_auths_operator none md2 md5 straight
    allowed_auths_admin none md2 md5 straight
    guid 0123456789abcdef0123456789abcdef
  endlan
  %s
  startnow false
  user 1 true "" "test" user 10 none md2 md5 straight
  user 2 true "admin" "secret" admin 10 none md2 md5 straight
`

// Board is what is behind the controller.
type Board int

// The boards.
const (
	Obedient  Board = iota
	NoChassis       // it has no chassis commands, and refuses them
)

// StartSim runs ipmi_sim until the test ends. Without it (Debian: openipmi) the test
// is skipped, and fails where AUSPEX_E2E says that the peers are there. More are further commands
// of its emulator (ipmi_sim_cmd(5)), for what the controller has.
func StartSim(t testing.TB, b Board, more ...string) *Sim {
	t.Helper()
	program, err := exec.LookPath("ipmi_sim")
	if err != nil {
		if os.Getenv("AUSPEX_E2E") != "" {
			t.Fatal(err)
		}
		t.Skip("ipmi_sim is not installed")
	}
	dir, err := os.MkdirTemp("", "ipmisim") // its paths must hold no space
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	s := &Sim{t: t, dir: dir}
	// Between finding a free port and taking it, a test beside this one may have taken it and
	// answer in its place: an address of its own has all ports free.
	host := net.IPv4(127, byte(1+rand.IntN(254)), byte(rand.IntN(256)), byte(1+rand.IntN(254))).String() //nolint:gosec // below 256
	free, err := net.ListenPacket("udp", host+":0")
	if err != nil {
		t.Fatal(err)
	}
	s.Addr = free.LocalAddr().String()
	_ = free.Close()
	_, port, _ := strings.Cut(s.Addr, ":")
	script := filepath.Join(dir, "chassis.sh")
	control := fmt.Sprintf("chassis_control \"%s %s\"", script, dir)
	if b == NoChassis {
		control = ""
	}
	for name, content := range map[string]string{
		"power": "1\n", "boot": "none\n", "asked": "", "sim.emu": fmt.Sprintf(emulator, strings.Join(more, "\n")), "lan.conf": fmt.Sprintf(lan, host, port, control), "chassis.sh": chassis,
	} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(content), 0o700); err != nil { //nolint:gosec // one is a program
			t.Fatal(err)
		}
	}
	var out bytes.Buffer
	ctx, cancel := context.WithCancel(context.Background())
	cmd := exec.CommandContext(ctx, program, "-c", filepath.Join(dir, "lan.conf"), "-f", filepath.Join(dir, "sim.emu"), "-s", dir, "-n", "-p")
	cmd.Stdout, cmd.Stderr = &out, &out
	if err := cmd.Start(); err != nil {
		cancel()
		t.Fatal(err)
	}
	exited := make(chan struct{})
	go func() {
		defer close(exited)
		_ = cmd.Wait()
	}()
	t.Cleanup(func() {
		cancel()
		<-exited
	})
	for end := time.Now().Add(time.Minute); !s.answers(); {
		select {
		case <-exited:
			t.Fatalf("ipmi_sim ended: %s", &out)
		default:
		}
		if time.Now().After(end) {
			t.Fatal("ipmi_sim does not answer")
		}
	}
	return s
}

// answers pings it (ASF presence ping, IPMI 2.0 section 13.2.3).
func (s *Sim) answers() bool {
	conn, err := net.Dial("udp", s.Addr)
	if err != nil {
		return false
	}
	defer func() { _ = conn.Close() }()
	ping := []byte{0x06, 0x00, 0xff, 0x06, 0x00, 0x00, 0x11, 0xbe, 0x80, 0x00, 0x00, 0x00}
	if _, err := conn.Write(ping); err != nil {
		return false
	}
	_ = conn.SetReadDeadline(time.Now().Add(50 * time.Millisecond))
	_, err = conn.Read(make([]byte, 64))
	return err == nil
}

func (s *Sim) read(name string) string {
	s.t.Helper()
	b, err := os.ReadFile(filepath.Join(s.dir, name))
	if err != nil {
		s.t.Fatal(err)
	}
	return strings.TrimSpace(string(b))
}

func (s *Sim) write(name, content string) {
	s.t.Helper()
	if err := os.WriteFile(filepath.Join(s.dir, name), []byte(content), 0o600); err != nil {
		s.t.Fatal(err)
	}
}

// Asked counts what the board was asked for. A cycle, which takes the power away, returns it by itself.
func (s *Sim) Asked() (n int) {
	cycled := false
	for line := range strings.Lines(s.read("asked")) {
		line = strings.TrimSpace(line)
		if !cycled || line != "power 1" {
			n++
		}
		cycled = line == "power 0"
	}
	return n
}

// SetPower turns the server on or off, as somebody at its button would.
func (s *Sim) SetPower(on bool) {
	s.write("power", map[bool]string{false: "0\n", true: "1\n"}[on])
}

// SetBoot makes the next boot one from pxe, cdrom or bios, or none; the simulator has no other.
func (s *Sim) SetBoot(device string) { s.write("boot", device+"\n") }

// Relay stands between a client and a controller until the test ends. What answer
// makes of each datagram of the controller is sent in its place.
func Relay(t testing.TB, to string, answer func(datagram []byte) [][]byte) (addr string) {
	t.Helper()
	return relay(t, to, func([]byte) bool { return true }, answer)
}

// RelayBoth is asked of each datagram of the client whether it arrives, and changes no answer.
func RelayBoth(t testing.TB, to string, arrives func(datagram []byte) bool) (addr string) {
	t.Helper()
	return relay(t, to, arrives, func(d []byte) [][]byte { return [][]byte{d} })
}

func relay(t testing.TB, to string, arrives func([]byte) bool, answer func([]byte) [][]byte) (addr string) {
	t.Helper()
	front, err := net.ListenPacket("udp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	var mu sync.Mutex
	backs := map[string]net.Conn{} // by client
	var wg sync.WaitGroup
	serve := func(from net.Addr, back net.Conn) {
		buf := make([]byte, 4096)
		for {
			n, err := back.Read(buf)
			if err != nil {
				return
			}
			for _, d := range answer(bytes.Clone(buf[:n])) {
				_, _ = front.WriteTo(d, from)
			}
		}
	}
	wg.Go(func() {
		buf := make([]byte, 4096)
		for {
			n, from, err := front.ReadFrom(buf)
			if err != nil {
				return
			}
			mu.Lock()
			back := backs[from.String()]
			if back == nil {
				if back, err = net.Dial("udp", to); err != nil {
					mu.Unlock()
					return
				}
				backs[from.String()] = back
				wg.Go(func() { serve(from, back) })
			}
			mu.Unlock()
			if arrives(buf[:n]) {
				_, _ = back.Write(buf[:n])
			}
		}
	})
	t.Cleanup(func() {
		_ = front.Close()
		mu.Lock()
		for _, b := range backs {
			_ = b.Close()
		}
		mu.Unlock()
		wg.Wait()
	})
	return front.LocalAddr().String()
}
