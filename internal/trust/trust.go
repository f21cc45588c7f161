// Package trust holds the settings of a client's side of TLS: whom to trust and
// who we are. Brokers, board controllers, switches, exporters, schedulers and
// Alertmanagers are all reached by the same keys.
package trust

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"os"
	"time"
)

// TLS says whom a client trusts and how it identifies itself. The zero value
// trusts the system's authorities.
type TLS struct {
	CAFile string `yaml:"ca_file"` // authorities that sign the servers' certificates, PEM; empty trusts the system's
	// CertFile and KeyFile are the client's own certificate, PEM, for servers that
	// ask for one.
	CertFile           string `yaml:"cert_file"`
	KeyFile            string `yaml:"key_file"`
	ServerName         string `yaml:"server_name"`          // the name in the certificate, where it is not that of the address
	InsecureSkipVerify bool   `yaml:"insecure_skip_verify"` // trusts whoever answers
}

// Validate names the key at fault. It reads no file.
func (t TLS) Validate() error {
	if (t.CertFile == "") != (t.KeyFile == "") {
		return errors.New("set both cert_file and key_file, or neither")
	}
	return nil
}

// Client reads the files. Errors name the key and the file.
func (t TLS) Client() (*tls.Config, error) {
	c := &tls.Config{MinVersion: tls.VersionTLS12, ServerName: t.ServerName, InsecureSkipVerify: t.InsecureSkipVerify}
	if t.CAFile != "" {
		pem, err := os.ReadFile(t.CAFile)
		if err != nil {
			return nil, fmt.Errorf("read ca_file: %w", err)
		}
		c.RootCAs = x509.NewCertPool()
		if !c.RootCAs.AppendCertsFromPEM(pem) {
			return nil, fmt.Errorf("ca_file %s holds no certificate", t.CAFile)
		}
	}
	if t.CertFile != "" {
		pair, err := tls.LoadX509KeyPair(t.CertFile, t.KeyFile)
		if err != nil {
			return nil, fmt.Errorf("read cert_file: %w", err)
		}
		c.Certificates = []tls.Certificate{pair}
	}
	return c, nil
}

// Expired says which file has the client's own certificate of c, and since when nobody takes that; nil is one that is good.
func (t TLS) Expired(c *tls.Config, now time.Time) error {
	if len(c.Certificates) == 0 || c.Certificates[0].Leaf == nil || now.Before(c.Certificates[0].Leaf.NotAfter) {
		return nil
	}
	return fmt.Errorf("cert_file %s expired on %s", t.CertFile, c.Certificates[0].Leaf.NotAfter.UTC().Format(time.RFC3339))
}
