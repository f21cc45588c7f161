package agent

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"os"
	"strings"
	"time"

	"auspex/agent/acts"
	"auspex/agent/dcgm"
	"auspex/agent/host"
	"auspex/agent/jobs"
	"auspex/agent/kernel"
	"auspex/agent/nvml"
	"auspex/internal/target"
	"auspex/internal/tunnel/outbound"
)

// Config is the agent's configuration file. What it names need not be there: a reader
// says what it cannot read.
type Config struct {
	Data   string `yaml:"data"`   // folder of the journal
	Listen string `yaml:"listen"` // address of the gNMI target; other than loopback needs tls; "" is none
	// Dial are servers to which it keeps a connection, through which they reach the target.
	Dial       []outbound.Config `yaml:"dial"`
	TLS        TLS               `yaml:"tls"`
	Credential Credential        `yaml:"credential"`
	Journal    Journal           `yaml:"journal"`
	Kernel     Kernel            `yaml:"kernel"`
	Fabric     Service           `yaml:"fabric_manager"`
	IMEX       Service           `yaml:"imex"`
	NVML       nvml.Config       `yaml:"nvml"`
	DCGM       dcgm.Config       `yaml:"dcgm"` // GPUs are numbered as NVML has them: without it this is not read
	Host       host.Config       `yaml:"host"`
	Target     Target            `yaml:"target"`
	Allow      Allow             `yaml:"allow"`
	Pods       jobs.Config       `yaml:"pods"`
	Acts       acts.Config       `yaml:"acts"`
}

// Allow says who may change what. Peers are written as the agent's log and its refusals
// name them: "certificate CN=auspex", "user auspex" or "dialled collector.example". Nobody is the default.
type Allow struct {
	Settings []string `yaml:"settings"` // of GPUs
	Reset    []string `yaml:"reset"`    // GPUs
	Reboot   []string `yaml:"reboot"`   // the server
	Reload   []string `yaml:"reload"`   // the driver of its GPUs
	Validate []string `yaml:"validate"` // GPUs: have them work, and tested
}

// TLS is the target's certificate, and whose clients' certificates it takes.
type TLS struct {
	CertFile     string `yaml:"cert_file"`
	KeyFile      string `yaml:"key_file"`
	ClientCAFile string `yaml:"client_ca_file"`
}

// Credential is what a client shows that has no certificate.
type Credential struct {
	User         string `yaml:"user"`
	PasswordFile string `yaml:"password_file"`
}

// Journal bounds what waits for a collector.
type Journal struct {
	MaxBytes int64 `yaml:"max_bytes"`
}

// Kernel says where the kernel's log is.
type Kernel struct {
	Disabled     bool          `yaml:"disabled"`
	Path         string        `yaml:"path"`
	BootIDFile   string        `yaml:"boot_id_file"`
	PollInterval time.Duration `yaml:"poll_interval"` // of a file of which the kernel does not tell, as on NFS
}

// Service says where the log of one of NVIDIA's services is.
type Service struct {
	Log          string        `yaml:"log"` // empty is not read
	PollInterval time.Duration `yaml:"poll_interval"`
}

// Target bounds what clients may ask.
type Target struct {
	MinSample     time.Duration `yaml:"min_sample"`
	Subscribers   int           `yaml:"subscribers"`
	Subscriptions int           `yaml:"subscriptions"`
	Connections   int           `yaml:"connections"`
}

// Default returns the defaults: a target on loopback that whoever is there may read.
func Default() *Config {
	d := target.DefaultConfig()
	return &Config{
		Data: "/var/lib/auspex-agent", Listen: "127.0.0.1:9339", Journal: Journal{MaxBytes: 64 << 20},
		Kernel: Kernel{Path: kernel.Device, BootIDFile: "/proc/sys/kernel/random/boot_id", PollInterval: 40 * time.Millisecond},
		Fabric: Service{Log: "/var/log/fabricmanager.log", PollInterval: time.Second},
		IMEX:   Service{Log: "/var/log/nvidia-imex.log", PollInterval: time.Second},
		NVML:   nvml.Default(),
		DCGM:   dcgm.Default(),
		Host:   host.Default(),
		Pods:   jobs.Default(),
		Acts:   acts.Default(),
		Target: Target{MinSample: d.MinSample, Subscribers: d.Subscribers, Subscriptions: d.Subscriptions, Connections: 64},
	}
}

// Validate names the first value that makes no sense. It reads no file.
func (c *Config) Validate() error {
	name, err := "localhost", error(nil) // who is not listened to comes from nowhere
	if c.Listen != "" {
		name, _, err = net.SplitHostPort(c.Listen)
	}
	switch {
	case c.Data == "":
		return errors.New("data: set the folder of the journal")
	case err != nil:
		return fmt.Errorf("listen: %w", err)
	case c.Listen == "" && len(c.Dial) == 0:
		return errors.New("listen: without an address, and with nobody to dial, nobody can reach the agent")
	case len(c.Dial) > maxDials:
		return fmt.Errorf("dial: at most %d servers are dialled", maxDials)
	case (c.TLS.CertFile == "") != (c.TLS.KeyFile == ""):
		return errors.New("tls: set both cert_file and key_file, or neither")
	case c.TLS.ClientCAFile != "" && c.TLS.CertFile == "":
		return errors.New("tls: client_ca_file needs cert_file and key_file")
	case (c.Credential.User == "") != (c.Credential.PasswordFile == ""):
		return errors.New("credential: set both user and password_file, or neither")
	case !loopback(name) && c.TLS.CertFile == "":
		return fmt.Errorf("listen: %s is not loopback: set tls.cert_file and tls.key_file", c.Listen)
	case !loopback(name) && c.TLS.ClientCAFile == "" && c.Credential.User == "":
		return fmt.Errorf("listen: %s is not loopback: set tls.client_ca_file or credential", c.Listen)
	case c.Journal.MaxBytes < 64<<10:
		return errors.New("journal.max_bytes: must be at least 64 KiB")
	case !c.Kernel.Disabled && (c.Kernel.Path == "" || c.Kernel.PollInterval < time.Millisecond):
		return errors.New("kernel: path must be set and poll_interval at least 1ms")
	case c.Fabric.Log != "" && c.Fabric.PollInterval < time.Millisecond:
		return errors.New("fabric_manager.poll_interval: must be at least 1ms")
	case c.IMEX.Log != "" && c.IMEX.PollInterval < time.Millisecond:
		return errors.New("imex.poll_interval: must be at least 1ms")
	case c.Target.Connections < 1:
		return errors.New("target.connections: must be at least 1")
	}
	for i := range c.Dial {
		if err := c.Dial[i].Validate(); err != nil {
			return fmt.Errorf("dial[%d].%w", i, err)
		}
	}
	if err := c.NVML.Validate(); err != nil {
		return fmt.Errorf("nvml: %w", err)
	}
	if err := c.DCGM.Validate(); err != nil {
		return fmt.Errorf("dcgm: %w", err)
	}
	if err := c.Host.Validate(); err != nil {
		return fmt.Errorf("host: %w", err)
	}
	if err := c.Pods.Validate(); err != nil {
		return fmt.Errorf("pods: %w", err)
	}
	if err := c.Acts.Validate(); err != nil {
		return fmt.Errorf("acts: %w", err)
	}
	t := c.target()
	if err := t.Validate(); err != nil {
		return fmt.Errorf("target: %w", err)
	}
	return nil
}

func (c *Config) target() target.Config {
	t := target.DefaultConfig()
	t.MinSample, t.Subscribers, t.Subscriptions = c.Target.MinSample, c.Target.Subscribers, c.Target.Subscriptions
	t.DefaultSample = max(t.DefaultSample, t.MinSample)
	return t
}

// maxDials bounds the servers that are dialled: those that collect and those that control.
const maxDials = 8

// loopback reports whether nobody but this machine reaches an address.
func loopback(name string) bool {
	ip := net.ParseIP(name)
	return name == "localhost" || ip != nil && ip.IsLoopback()
}

// access reads who may ask.
func (c *Config) access() (target.Access, error) {
	name, _, _ := net.SplitHostPort(c.Listen)
	a := target.Access{User: c.Credential.User, Anonymous: (c.Listen == "" || loopback(name)) && c.Credential.User == "" && c.TLS.ClientCAFile == ""}
	if a.User == "" {
		return a, nil
	}
	b, err := os.ReadFile(c.Credential.PasswordFile)
	if err != nil {
		return a, fmt.Errorf("credential.password_file: %w", err)
	}
	a.Password, _, _ = strings.Cut(string(b), "\n")
	if a.Password = strings.TrimRight(a.Password, "\r"); a.Password == "" {
		return a, fmt.Errorf("credential.password_file: %s begins with no password", c.Credential.PasswordFile)
	}
	return a, nil
}

// server reads the certificate; nil speaks plain text.
func (t *TLS) server(password bool) (*tls.Config, error) {
	if t.CertFile == "" {
		return nil, nil //nolint:nilnil // no TLS is no error
	}
	pair, err := tls.LoadX509KeyPair(t.CertFile, t.KeyFile)
	if err != nil {
		return nil, fmt.Errorf("tls.cert_file: %w", err)
	}
	out := &tls.Config{MinVersion: tls.VersionTLS12, Certificates: []tls.Certificate{pair}}
	if t.ClientCAFile == "" {
		return out, nil
	}
	pem, err := os.ReadFile(t.ClientCAFile)
	if err != nil {
		return nil, fmt.Errorf("tls.client_ca_file: %w", err)
	}
	out.ClientCAs = x509.NewCertPool()
	if !out.ClientCAs.AppendCertsFromPEM(pem) {
		return nil, fmt.Errorf("tls.client_ca_file: %s holds no certificate", t.ClientCAFile)
	}
	out.ClientAuth = tls.RequireAndVerifyClientCert
	if password {
		out.ClientAuth = tls.VerifyClientCertIfGiven
	}
	return out, nil
}

// Check validates a configuration and reads the files that it names; it starts nothing.
func Check(c *Config) error {
	if err := c.Validate(); err != nil {
		return err
	}
	access, err := c.access()
	if err != nil {
		return err
	}
	for i := range c.Dial {
		if err := c.Dial[i].Check(); err != nil {
			return fmt.Errorf("dial[%d].%w", i, err)
		}
	}
	_, err = c.TLS.server(access.User != "")
	return err
}
