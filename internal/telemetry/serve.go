package telemetry

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"strconv"
	"syscall"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// ServeConfig is where a process that has no API serves /metrics, /-/healthy and
// /-/ready.
type ServeConfig struct {
	// Listen is its address; port 0 takes a free one, which run.json and the line
	// "ready" tell.
	Listen string `yaml:"listen"`
	// Open lets everybody read who reaches the address. It is needed beyond loopback.
	Open bool `yaml:"open"`
}

// DefaultServeConfig takes a free port on loopback: roles on one machine do not
// meet there.
func DefaultServeConfig() ServeConfig { return ServeConfig{Listen: "127.0.0.1:0"} }

// Validate names the key at fault.
func (c ServeConfig) Validate() error {
	host, port, err := net.SplitHostPort(c.Listen)
	if err != nil {
		return fmt.Errorf("listen: %w", err)
	}
	if n, err := strconv.Atoi(port); err != nil || n < 0 || n > 65535 {
		return fmt.Errorf("listen: %q is not a port", port)
	}
	if !c.Open && host != "localhost" && !net.ParseIP(host).IsLoopback() {
		return fmt.Errorf("listen: %s is not loopback, so anyone could read the metrics; set open: true to allow it", c.Listen)
	}
	return nil
}

// Serve answers until ctx is done. It calls ready with the address once requests
// are answered.
func Serve(ctx context.Context, c ServeConfig, g prometheus.Gatherer, h *Health, log *slog.Logger, ready func(addr net.Addr)) error {
	var lc net.ListenConfig
	ln, err := lc.Listen(ctx, "tcp", c.Listen)
	if errors.Is(err, syscall.EADDRINUSE) {
		return fmt.Errorf("listen on %s: the address is in use; choose another with metrics.listen", c.Listen)
	} else if err != nil {
		return fmt.Errorf("listen on %s: %w", c.Listen, err)
	}
	all := Handler(g, h)
	mux := http.NewServeMux() // profiles are not for everybody on the machine
	for _, p := range []string{"/metrics", "/-/healthy", "/-/ready"} {
		mux.Handle("GET "+p, all)
	}
	srv := &http.Server{
		Handler: mux, ReadHeaderTimeout: 5 * time.Second, ReadTimeout: 10 * time.Second, WriteTimeout: time.Minute, IdleTimeout: time.Minute,
		MaxHeaderBytes: 16 << 10, ErrorLog: slog.NewLogLogger(log.Handler(), slog.LevelDebug),
	}
	failed := make(chan error, 1)
	go func() { failed <- srv.Serve(ln) }()
	ready(ln.Addr())
	select {
	case err = <-failed:
	case <-ctx.Done():
		shut, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Second)
		defer cancel()
		if srv.Shutdown(shut) != nil {
			_ = srv.Close()
		}
		<-failed
	}
	return err
}
