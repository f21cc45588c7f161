package discover

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"strings"
	"time"
	"unicode"

	"auspex/internal/bmc"
	"auspex/internal/bmc/ipmi"
	"auspex/internal/bmc/redfish"
	"auspex/schemas"
)

// asker asks addresses.
type asker struct {
	timeout, readTime time.Duration
	tls               *tls.Config
	user, password    string
	// turn waits for the turn at the controller of an address, where others may be busy with it.
	turn func(ctx context.Context, protocol, address string) (release func(), err error)
}

const (
	maxText  = 200 // characters that are kept of a word
	maxParts = 64  // of a kind
)

// word is what a controller says, as it may be shown: whoever answers is not to be trusted.
func word(s string) string {
	s = strings.TrimSpace(strings.Map(func(r rune) rune {
		if unicode.IsControl(r) || !unicode.IsPrint(r) {
			return -1
		}
		return r
	}, strings.ToValidUTF8(s, "")))
	if r := []rune(s); len(r) > maxText {
		s = string(r[:maxText])
	}
	return s
}

// told is a word, or "" where it is one that makers leave in place of one.
func told(s string) string {
	if s = word(s); !identifies(s) {
		return ""
	}
	return s
}

// ask asks an address, over Redfish and, where nothing speaks that, over IPMI. No find is silence;
// an error is that of a context that has ended.
func (a *asker) ask(ctx context.Context, at netip.Addr, redfishPorts, ipmiPorts []int) (finds []schemas.Find, err error) {
	each := func(protocol string, ports []int, read func(context.Context, netip.AddrPort, *schemas.Find) bool) error {
		for _, port := range ports {
			address := netip.AddrPortFrom(at, uint16(port))
			release, err := a.turn(ctx, protocol, address.String())
			if err != nil {
				return err
			}
			f := schemas.Find{Address: address.String(), Protocol: protocol, Result: schemas.FindFound}
			bounded, cancel := context.WithTimeout(ctx, a.readTime)
			answers := read(bounded, address, &f)
			cancel()
			release()
			if ctx.Err() != nil {
				return ctx.Err()
			}
			if answers {
				finds = append(finds, f)
			}
		}
		return nil
	}
	if err := each(redfishProtocol, redfishPorts, a.redfish); err != nil || len(finds) > 0 || a.user == "" {
		return finds, err
	}
	return finds, each(ipmiProtocol, ipmiPorts, a.ipmi)
}

// fail says in a find why nothing could be read.
func fail(f *schemas.Find, err error) {
	f.Result, f.Message = schemas.FindUnreadable, word(err.Error())
	if bmc.KindOf(err) == bmc.Refused || errors.Is(err, redfish.ErrAuth) {
		f.Result, f.Message = schemas.FindRefused, "The controller refuses the credential."
	}
}

// redfish reads a service, over one connection. Nothing is told to whoever has no certificate that
// we trust, and a credential that is refused is not tried again.
func (a *asker) redfish(ctx context.Context, at netip.AddrPort, f *schemas.Find) (answers bool) {
	c, err := redfish.New(redfish.Options{URL: "https://" + at.String(), TLS: a.tls, Timeout: a.readTime, Patience: a.readTime / 2})
	if err != nil {
		fail(f, err)
		return true
	}
	defer c.Close(ctx)
	first, cancel := context.WithTimeout(ctx, a.timeout)
	root, err := c.Root(first)
	cancel()
	var untrusted *tls.CertificateVerificationError
	var busy *redfish.StatusError
	switch {
	case errors.As(err, &untrusted), errors.As(err, new(x509.UnknownAuthorityError)):
		f.Result = schemas.FindUnreadable
		f.Message = "Its certificate is not one that trust.bmc of the configuration trusts, so it was told no credential: " + word(untrusted.Error())
		return true
	case errors.As(err, &busy) && busy.Status == http.StatusServiceUnavailable && busy.Message != "":
		fail(f, err) // a controller that starts; other servers have no such words
		return true
	case err != nil:
		return false // no Redfish service: another server, or nobody
	case root.String("RedfishVersion") == "" && !strings.Contains(root.String("@odata.type"), "ServiceRoot"):
		return false
	}
	f.Manufacturer, f.Model = word(root.String("Vendor")), word(root.String("Product"))
	if a.user == "" {
		f.Message = "Without a credential no more than its service root was read."
		return true
	}
	c.SetCredentials(a.user, a.password)
	m := machine{c: c, f: f}
	if err := m.read(ctx, root.Object); err != nil {
		fail(f, err)
	}
	if f.Result == schemas.FindFound && ctx.Err() != nil {
		f.Message = fmt.Sprintf("Not all of it could be read within %s, the bound of discovery.read_time.", a.readTime)
	}
	return true
}

// ipmi reads the FRU of a controller. The cipher suites are tried one by one, as long as none of
// them has had the credential refused.
func (a *asker) ipmi(ctx context.Context, at netip.AddrPort, f *schemas.Find) (answers bool) {
	for _, suite := range ipmi.DefaultOptions().CipherSuites {
		c, err := ipmi.New(ipmi.Options{
			Addr: at.String(), User: a.user, Password: a.password, Timeout: a.timeout / 2, Retries: 1, CipherSuites: []int{suite},
		})
		if err != nil {
			fail(f, err)
			return true
		}
		fru, err := c.FRU(ctx)
		open := c.Connected()
		_ = c.Close(ctx)
		var refused *net.OpError
		switch {
		case err == nil:
			f.Hardware = schemas.Hardware{Manufacturer: told(fru.Manufacturer), Model: told(fru.Product), SerialNumber: told(fru.Serial)}
			f.Result, f.Message = schemas.FindFound, ""
			return true
		case errors.Is(err, ipmi.ErrNoAnswer), errors.As(err, &refused):
			return f.Message != "" // silence, unless a suite was answered
		}
		if errors.Is(err, ipmi.ErrNoRecord) {
			err = errors.New("it keeps no FRU inventory")
		}
		if fail(f, err); f.Result == schemas.FindRefused || open {
			return true
		}
	}
	return true
}
