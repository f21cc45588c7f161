package trust

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"os"
	"strings"
	"sync"
	"time"
)

// Server says how a server identifies itself and whom it lets in. The zero value speaks no TLS.
type Server struct {
	CertFile string `yaml:"cert_file"` // PEM
	KeyFile  string `yaml:"key_file"`  // PEM
	// ClientCAFile holds the authorities that sign the certificates of clients, PEM: without such a
	// certificate nobody is let in. Empty asks for none.
	ClientCAFile string `yaml:"client_ca_file"`
}

// On reports whether TLS is spoken.
func (s Server) On() bool { return s.CertFile != "" }

// Validate names the key at fault. It reads no file.
func (s Server) Validate() error {
	switch {
	case (s.CertFile == "") != (s.KeyFile == ""):
		return errors.New("set both cert_file and key_file, or neither")
	case s.ClientCAFile != "" && s.CertFile == "":
		return errors.New("client_ca_file: set cert_file and key_file too: only TLS shows a client's certificate")
	}
	return nil
}

// Config reads the files. Errors name the key and the file.
func (s Server) Config() (*tls.Config, error) {
	pair, err := tls.LoadX509KeyPair(s.CertFile, s.KeyFile)
	if err != nil {
		return nil, fmt.Errorf("cert_file: %w", err)
	}
	c := &tls.Config{MinVersion: tls.VersionTLS12, Certificates: []tls.Certificate{pair}}
	if s.ClientCAFile != "" {
		pem, err := os.ReadFile(s.ClientCAFile)
		if err != nil {
			return nil, fmt.Errorf("client_ca_file: %w", err)
		}
		c.ClientCAs, c.ClientAuth = x509.NewCertPool(), tls.RequireAndVerifyClientCert
		if !c.ClientCAs.AppendCertsFromPEM(pem) {
			return nil, fmt.Errorf("client_ca_file %s holds no certificate", s.ClientCAFile)
		}
	}
	return c, nil
}

// lookEvery bounds how often files are looked at.
const lookEvery = time.Second

// Follow reads the files, and returns a configuration whose connections use them as they are when a
// client comes: who renews a certificate restarts nobody. Files that cannot be read leave in force
// what was, and are told, once for each change.
func (s Server) Follow(told func(error)) (*tls.Config, error) {
	now, err := s.Config()
	if err != nil {
		return nil, err
	}
	f := &following{server: s, told: told, now: now, files: s.look(), looked: time.Now()}
	c := now.Clone()
	c.GetConfigForClient = func(*tls.ClientHelloInfo) (*tls.Config, error) { return f.current(), nil }
	return c, nil
}

// following is what [Server.Follow] keeps.
type following struct {
	server Server
	told   func(error)

	mu     sync.Mutex
	now    *tls.Config
	files  string // as they were when they were read
	looked time.Time
}

// look returns what changes when a file does.
func (s Server) look() string {
	var out strings.Builder
	for _, name := range []string{s.CertFile, s.KeyFile, s.ClientCAFile} {
		if st, err := os.Stat(name); err == nil {
			fmt.Fprintln(&out, st.ModTime().UnixNano(), st.Size())
		}
	}
	return out.String()
}

func (f *following) current() *tls.Config {
	f.mu.Lock()
	defer f.mu.Unlock()
	if time.Since(f.looked) < lookEvery {
		return f.now
	}
	f.looked = time.Now()
	files := f.server.look()
	if files == f.files {
		return f.now
	}
	f.files = files
	c, err := f.server.Config()
	if err != nil {
		f.told(err)
		return f.now
	}
	f.now = c
	return f.now
}
