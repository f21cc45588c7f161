// Package certtest makes certificates for tests and runs the handshakes that
// every client with TLS settings must tell apart. Nothing of it is in the binary.
package certtest

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"auspex/internal/trust"
)

// Authority signs certificates.
type Authority struct {
	// File is the authority's certificate, PEM.
	File string
	// Pool holds it alone.
	Pool *x509.CertPool

	cert *x509.Certificate
	key  *ecdsa.PrivateKey
}

// Leaf is a certificate with its key, loaded and as PEM files.
type Leaf struct {
	tls.Certificate
	CertFile, KeyFile string
}

// New makes an authority that lasts as long as the test.
func New(t testing.TB) *Authority {
	t.Helper()
	now := time.Now()
	a := &Authority{Pool: x509.NewCertPool(), cert: &x509.Certificate{
		Subject: pkix.Name{CommonName: "test authority"}, NotBefore: now.Add(-48 * time.Hour), NotAfter: now.Add(48 * time.Hour),
		IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign,
	}}
	der, key := sign(t, a.cert, a.cert, nil)
	a.key = key
	var err error
	if a.cert, err = x509.ParseCertificate(der); err != nil {
		t.Fatal(err)
	}
	a.Pool.AddCert(a.cert)
	a.File = write(t, "ca.pem", "CERTIFICATE", der)
	return a
}

// Issue signs a certificate for names and addresses that ends at a time; it serves
// both ends of a connection.
func (a *Authority) Issue(t testing.TB, until time.Time, names ...string) Leaf {
	t.Helper()
	template := &x509.Certificate{
		Subject: pkix.Name{CommonName: "test"}, NotBefore: until.Add(-24 * time.Hour), NotAfter: until,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth}, KeyUsage: x509.KeyUsageDigitalSignature,
	}
	for _, n := range names {
		if ip := net.ParseIP(n); ip != nil {
			template.IPAddresses = append(template.IPAddresses, ip)
		} else {
			template.DNSNames = append(template.DNSNames, n)
		}
	}
	der, key := sign(t, template, a.cert, a.key)
	private, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	l := Leaf{CertFile: write(t, "tls.crt", "CERTIFICATE", der), KeyFile: write(t, "tls.key", "PRIVATE KEY", private)}
	if l.Certificate, err = tls.LoadX509KeyPair(l.CertFile, l.KeyFile); err != nil {
		t.Fatal(err)
	}
	return l
}

func sign(t testing.TB, template, parent *x509.Certificate, by *ecdsa.PrivateKey) ([]byte, *ecdsa.PrivateKey) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	if by == nil {
		by = key
	}
	if template.SerialNumber, err = rand.Int(rand.Reader, big.NewInt(1<<62)); err != nil {
		t.Fatal(err)
	}
	der, err := x509.CreateCertificate(rand.Reader, template, parent, &key.PublicKey, by)
	if err != nil {
		t.Fatal(err)
	}
	return der, key
}

func write(t testing.TB, name, kind string, der []byte) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), name)
	if err := os.WriteFile(file, pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der}), 0o600); err != nil {
		t.Fatal(err)
	}
	return file
}

// Handshake is a server on 127.0.0.1 and what its client is configured with.
type Handshake struct {
	Server *tls.Config
	trust.TLS
}

// Handshakes tries a client against servers that it must trust and that it must
// not. try starts a server with the one side, lets the client with the other side
// do something that needs an answer, and returns the client's error.
func Handshakes(t *testing.T, try func(t *testing.T, h Handshake) error) {
	t.Helper()
	ours, theirs := New(t), New(t)
	soon, past := time.Now().Add(time.Hour), time.Now().Add(-time.Hour)
	server := func(l Leaf) *tls.Config {
		return &tls.Config{MinVersion: tls.VersionTLS12, Certificates: []tls.Certificate{l.Certificate}}
	}
	good := ours.Issue(t, soon, "127.0.0.1")
	mutual := func() *tls.Config {
		c := server(good)
		c.ClientAuth, c.ClientCAs = tls.RequireAndVerifyClientCert, ours.Pool
		return c
	}
	client, stranger := ours.Issue(t, soon, "client"), theirs.Issue(t, soon, "client")
	type test struct {
		name string
		h    Handshake
		want []string // one of them is in the error; none: no error
	}
	tests := []test{
		{"a server that is known", Handshake{server(good), trust.TLS{CAFile: ours.File}}, nil},
		{"a server of another authority", Handshake{server(good), trust.TLS{CAFile: theirs.File}}, []string{"unknown authority"}},
		{
			"a certificate that has expired",
			Handshake{server(ours.Issue(t, past, "127.0.0.1")), trust.TLS{CAFile: ours.File}},
			[]string{"expired"},
		},
		{"a certificate of another name", Handshake{server(ours.Issue(t, soon, "elsewhere.example")), trust.TLS{CAFile: ours.File}}, []string{
			"doesn't contain any IP SANs", "valid for",
		}},
		{"no certificate where the server wants one", Handshake{mutual(), trust.TLS{CAFile: ours.File}}, []string{
			"certificate required", "bad certificate", "broken pipe", "connection reset", "EOF",
		}},
		{
			"a certificate that the server knows",
			Handshake{mutual(), trust.TLS{CAFile: ours.File, CertFile: client.CertFile, KeyFile: client.KeyFile}},
			nil,
		},
		{
			"a certificate of another authority",
			Handshake{mutual(), trust.TLS{CAFile: ours.File, CertFile: stranger.CertFile, KeyFile: stranger.KeyFile}},
			[]string{"certificate", "broken pipe", "connection reset", "EOF"},
		},
	}
	for _, tc := range tests {
		t.Run(tc.name, func(t *testing.T) {
			err := try(t, tc.h)
			if len(tc.want) == 0 {
				if err != nil {
					t.Errorf("refused: %v", err)
				}
				return
			}
			if err == nil {
				t.Fatal("accepted")
			}
			for _, w := range tc.want {
				if strings.Contains(err.Error(), w) {
					return
				}
			}
			t.Errorf("error %q does not say why; want one of %q", err, tc.want)
		})
	}
}
