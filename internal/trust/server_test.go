package trust_test

import (
	"crypto/tls"
	"errors"
	"net"
	"os"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"auspex/internal/certtest"
	"auspex/internal/trust"
	"auspex/internal/waittest"
)

func TestAServerUsesCertificatesAsTheyAreWhenAClientComes(t *testing.T) {
	ca := certtest.New(t)
	until := time.Now().Add(time.Hour)
	first, second := ca.Issue(t, until, "first.example"), ca.Issue(t, until, "second.example")
	var told atomic.Int32
	config, err := trust.Server{CertFile: first.CertFile, KeyFile: first.KeyFile}.Follow(func(error) { told.Add(1) })
	if err != nil {
		t.Fatal(err)
	}
	l, err := tls.Listen("tcp", "127.0.0.1:0", config)
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			_ = c.(*tls.Conn).Handshake()
			_ = c.Close()
		}
	}()
	defer func() { _ = l.Close(); <-done }()
	shown := func() string {
		raw, err := net.Dial("tcp", l.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		defer raw.Close()
		c := tls.Client(raw, &tls.Config{RootCAs: ca.Pool, InsecureSkipVerify: true})
		if err := c.Handshake(); err != nil {
			return err.Error()
		}
		return strings.Join(c.ConnectionState().PeerCertificates[0].DNSNames, ",")
	}
	if got := shown(); got != "first.example" {
		t.Fatal(got)
	}
	put := func(to, from string) {
		b, err := os.ReadFile(from)
		if err == nil {
			err = os.WriteFile(to, b, 0o600)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	put(first.CertFile, second.CertFile)
	put(first.KeyFile, second.KeyFile)
	waittest.For(t, "the renewed certificate", func() bool { return shown() == "second.example" })
	told.Store(0)
	if err := os.WriteFile(first.CertFile, []byte("nonsense"), 0o600); err != nil {
		t.Fatal(err)
	}
	waittest.For(t, "a word about the file", func() bool { return shown() == "second.example" && told.Load() == 1 })
}

func TestAServersFilesAreNamedInErrors(t *testing.T) {
	leaf := certtest.New(t).Issue(t, time.Now().Add(time.Hour), "x")
	for _, tc := range []struct {
		s    trust.Server
		want string
	}{
		{trust.Server{CertFile: "/nowhere", KeyFile: "/nowhere"}, "cert_file: "},
		{trust.Server{CertFile: leaf.CertFile, KeyFile: leaf.KeyFile, ClientCAFile: "/nowhere"}, "client_ca_file: "},
		{trust.Server{CertFile: leaf.CertFile, KeyFile: leaf.KeyFile, ClientCAFile: leaf.KeyFile}, "client_ca_file " + leaf.KeyFile + " holds no certificate"},
	} {
		_, err := tc.s.Follow(func(error) {})
		if err == nil || !strings.HasPrefix(err.Error(), tc.want) {
			t.Errorf("%v, want %s", err, tc.want)
		}
	}
	if err := (trust.Server{CertFile: "x"}).Validate(); err == nil || errors.Unwrap(err) != nil {
		t.Error(err)
	}
}
