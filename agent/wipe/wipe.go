// Package wipe is the action of a workflow that looks whether the drives of its server hold nothing any more, and tells the
// metadata service: `auspex-agent wipe-proof`. It writes to no drive.
package wipe

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"auspex/agent/host"
	"auspex/internal/wipe"
	"auspex/schemas"
)

// Verb is its argument of the agent.
const Verb = "wipe-proof"

// Variables of the environment, which is how Tinkerbell's actions are given something.
const (
	envURL    = "METADATA_URL"
	envToken  = "WIPE_TOKEN"  //nolint:gosec // the name of it
	envCA     = "METADATA_CA" // certificates in PEM, where those of the image do not know that of the service
	envBlocks = "BLOCKS"
	envWait   = "WAIT_SECONDS" // for sanitize operations that go on
)

const (
	poll    = 5 * time.Second
	patient = time.Hour
	telling = 10 * time.Minute // how long it is tried to tell a report
)

// machine is where drives are found.
type machine struct {
	sys, dev  string // folders
	nvme, ata func(device string) ([]byte, error)
	poll      time.Duration
}

// Main does all of it; 1 is that the drives are not proven to hold nothing, or that nobody could be told, and 2 a mistake of usage.
func Main(ctx context.Context, env func(string) string, stdout, stderr io.Writer) int {
	return machine{"/sys", "/dev", host.SanitizeNVMe, host.SanitizeATA, poll}.main(ctx, env, stdout, stderr)
}

// settings are what the environment says.
type settings struct {
	url, token string
	blocks     int
	wait       time.Duration
	client     *http.Client
}

func read(env func(string) string) (s settings, err error) {
	s = settings{url: env(envURL), token: env(envToken), blocks: wipe.Usual, wait: patient, client: &http.Client{Timeout: time.Minute}}
	if s.url == "" || s.token == "" {
		return s, fmt.Errorf("%s and %s say whom to tell, and as whom: a workflow that wipes has both", envURL, envToken)
	}
	number := func(name string, least, most int, into *int) error {
		text := env(name)
		if text == "" {
			return nil
		}
		n, err := strconv.Atoi(text)
		if err != nil || n < least || n > most {
			return fmt.Errorf("%s is %q; want a number from %d to %d", name, text, least, most)
		}
		*into = n
		return nil
	}
	seconds := int(s.wait / time.Second)
	if err := errors.Join(number(envBlocks, wipe.Fewest, 4000, &s.blocks), number(envWait, 0, 86400, &seconds)); err != nil {
		return s, err
	}
	s.wait = time.Duration(seconds) * time.Second
	if pem := env(envCA); pem != "" {
		pool := x509.NewCertPool()
		if !pool.AppendCertsFromPEM([]byte(pem)) {
			return s, fmt.Errorf("%s has no certificate in PEM", envCA)
		}
		s.client.Transport = &http.Transport{Proxy: http.ProxyFromEnvironment, TLSClientConfig: &tls.Config{MinVersion: tls.VersionTLS12, RootCAs: pool}}
	}
	return s, nil
}

func (m machine) main(ctx context.Context, env func(string) string, stdout, stderr io.Writer) int {
	s, err := read(env)
	if err != nil {
		fmt.Fprintf(stderr, "auspex-agent %s: %v\n", Verb, err)
		return 2
	}
	r, err := m.look(ctx, s, stdout)
	if err != nil {
		fmt.Fprintf(stderr, "auspex-agent %s: %v\n", Verb, err)
		return 1
	}
	ctx, cancel := context.WithTimeout(ctx, telling)
	defer cancel()
	a, err := wipe.Send(ctx, s.client, s.url, s.token, r)
	if err != nil {
		fmt.Fprintf(stderr, "auspex-agent %s: %v\n", Verb, err)
		return 1
	}
	for i := range a.Drives {
		d := &a.Drives[i]
		word := "not proven"
		if d.Proven {
			word = "proven"
		}
		fmt.Fprintf(stdout, "%s: %s: %s\n", wipe.Name(d), word, d.Detail)
	}
	if !a.Proven {
		return 1
	}
	return 0
}

// look looks at all drives, once no sanitize operation goes on or the time for that is over.
func (m machine) look(ctx context.Context, s settings, stdout io.Writer) (*wipe.Report, error) {
	r := &wipe.Report{Began: time.Now().UTC()}
	all, err := m.drives()
	if err != nil {
		return nil, err
	}
	until := time.Now().Add(s.wait)
	for i := range all {
		d := &all[i]
		for {
			running, err := m.status(d)
			if err != nil { // it does not tell, or not us: blocks do
				fmt.Fprintf(stdout, "%s: %v\n", d.Device, err)
			}
			if !running || time.Now().After(until) {
				break
			}
			wait := time.NewTimer(m.poll)
			select {
			case <-ctx.Done():
				wait.Stop()
				return nil, ctx.Err()
			case <-wait.C:
			}
		}
		if d.Blocks, err = sample(d.Device, d.Size, s.blocks); err != nil {
			fmt.Fprintf(stdout, "%s: %v\n", d.Device, err)
		}
	}
	r.Drives, r.Ended = all, time.Now().UTC()
	return r, nil
}

// status reads what a drive says of its last sanitize operation, and reports whether one goes on.
func (m machine) status(d *wipe.Drive) (running bool, err error) {
	var s schemas.SanitizeStatus
	switch name := filepath.Base(d.Device); {
	case strings.HasPrefix(name, "nvme"):
		if d.NVMe, err = m.nvme(d.Device); err == nil {
			s, err = wipe.NVMe(d.NVMe)
		}
	case m.text(name, "device/vendor") == "ATA":
		if d.ATA, err = m.ata(d.Device); err == nil {
			s, err = wipe.ATA(d.ATA)
		}
	}
	return s.State == schemas.SanitizeRunning, err
}

// text is what a file of a block device says, or "".
func (m machine) text(name, file string) string {
	b, err := os.ReadFile(filepath.Join(m.sys, "block", name, file))
	if err != nil {
		return ""
	}
	return strings.TrimSpace(strings.Trim(string(b), "\x00"))
}

// serial is that of a disk: as the controller of NVMe has it, or on page 80h of its vital product data (SPC-4, section 7.8.15),
// of which four octets are its head.
func (m machine) serial(name string) string {
	if s := m.text(name, "device/serial"); s != "" {
		return s
	}
	b, err := os.ReadFile(filepath.Join(m.sys, "block", name, "device/vpd_pg80"))
	if err != nil || len(b) < 4 {
		return ""
	}
	return strings.TrimSpace(strings.Trim(string(b[4:]), "\x00"))
}

// drives are the disks of the server: block devices of their own device (Documentation/ABI/stable/sysfs-block), but for what
// can be taken out, such as a BMC's virtual media, and the single paths to a namespace of several.
func (m machine) drives() (out []wipe.Drive, err error) {
	found, err := os.ReadDir(filepath.Join(m.sys, "block"))
	if err != nil {
		return nil, fmt.Errorf("list the drives: %w", err)
	}
	for _, f := range found {
		name := f.Name()
		if _, err := os.Stat(filepath.Join(m.sys, "block", name, "device")); err != nil || strings.HasPrefix(name, "sr") {
			continue
		}
		sectors, err := strconv.ParseInt(m.text(name, "size"), 10, 64)
		if err != nil || sectors == 0 || m.text(name, "removable") == "1" || m.text(name, "hidden") == "1" {
			continue
		}
		out = append(out, wipe.Drive{Device: filepath.Join(m.dev, name), Serial: m.serial(name), Model: m.text(name, "device/model"), Size: 512 * sectors})
	}
	return out, nil
}

// sample reads blocks of a drive itself, past what the kernel has kept of it; what is no drive cannot be read so.
func sample(device string, size int64, n int) (*schemas.WipeBlocks, error) {
	f, err := os.OpenFile(device, os.O_RDONLY|syscall.O_DIRECT, 0)
	if st, failed := os.Stat(device); errors.Is(err, syscall.EINVAL) && failed == nil && st.Mode().Type()&fs.ModeDevice == 0 {
		f, err = os.Open(device)
	}
	if err != nil {
		return nil, err
	}
	defer func() { _ = f.Close() }()
	return wipe.Sample(f, size, n), nil
}
