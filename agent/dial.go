package agent

import (
	"crypto/sha256"
	"encoding/hex"
	"net"
	"os"
	"path/filepath"
	"strings"

	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"

	"auspex/internal/target"
	"auspex/internal/tunnel/outbound"
)

// dials makes what keeps a connection to each server that is dialled. Without a key of the
// machine none is: what is read waits in the journal.
func (a *Agent) dials(about *outbound.About) {
	if len(a.cfg.Dial) == 0 {
		return
	}
	own, err := outbound.Identity(filepath.Join(a.cfg.Data, "dial.key"))
	if err != nil {
		a.log.Error("nobody is dialled", "error", err)
		return
	}
	if about == nil {
		about = aboutMachine(a.cfg.Host.Sys)
	}
	a.sessions = outbound.NewSessions()
	for _, d := range a.cfg.Dial {
		a.readers = append(a.readers, reader{"dial " + d.Address, outbound.New(d, own, *about, a.sessions, a.log).Run})
	}
}

// aboutMachine reads who the machine is; what cannot be read is left out. The serial number
// and the UUID are for root alone on most.
func aboutMachine(sys string) *outbound.About {
	read := func(name string) string {
		b, _ := os.ReadFile(name)
		return strings.TrimSpace(string(b[:min(len(b), 256)]))
	}
	dmi := filepath.Join(sys, "class", "dmi", "id")
	about := &outbound.About{Serial: read(filepath.Join(dmi, "product_serial")), UUID: read(filepath.Join(dmi, "product_uuid"))}
	about.Hostname, _ = os.Hostname()
	if id := read("/etc/machine-id"); id != "" { // it is not to be told as it is: machine-id(5)
		h := sha256.Sum256([]byte("auspex-agent " + id))
		about.Machine = hex.EncodeToString(h[:])
	}
	return about
}

// doors are the credentials of the target: what comes through a tunnel was verified when the
// other end was dialled, all else shows who it is.
type doors struct {
	credentials.TransportCredentials
}

func newDoors(listener credentials.TransportCredentials) credentials.TransportCredentials {
	if listener == nil {
		listener = insecure.NewCredentials()
	}
	return doors{listener}
}

// ServerHandshake implements [credentials.TransportCredentials].
func (d doors) ServerHandshake(c net.Conn) (net.Conn, credentials.AuthInfo, error) {
	if t, ok := c.(*outbound.Conn); ok {
		p := t.Peer()
		return c, target.Dialled{Name: p.Name, Verified: p.Verified}, nil
	}
	return d.TransportCredentials.ServerHandshake(c)
}

// Clone implements [credentials.TransportCredentials].
func (d doors) Clone() credentials.TransportCredentials { return doors{d.TransportCredentials.Clone()} }
