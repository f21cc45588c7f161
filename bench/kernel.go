package bench

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"time"
)

// PeerKernel writes kernel logs and takes the posts of an Alertmanager's clients.
const PeerKernel = "kernel"

// KernelOptions says which hosts there are.
type KernelOptions struct {
	Dir     string `json:"dir"` // of the kernel logs
	Servers int    `json:"servers"`
}

// KernelReport is what the peer tells. Times are Unix nanoseconds of its clock,
// which is that of every process of the machine.
type KernelReport struct {
	URL string `json:"url,omitempty"` // of the Alertmanager; the first thing told

	Resource string `json:"resource,omitempty"`
	Written  int64  `json:"written,omitempty"`  // the line is in the file
	Notified int64  `json:"notified,omitempty"` // the post that first named the resource as a cause was answered
	Fault    string `json:"fault,omitempty"`
}

// KernelOrder tells the peer to write an XID of one GPU.
type KernelOrder struct {
	Server int    `json:"server"`
	GPU    int    `json:"gpu"`
	XID    int    `json:"xid"`
	Detail string `json:"detail"`
}

// kernel plays hosts, and an Alertmanager.
func kernel(ctx context.Context, options []byte, in *json.Decoder, out *sender) error {
	var o KernelOptions
	if err := json.Unmarshal(options, &o); err != nil {
		return err
	}
	logs, err := openLogs(o)
	if err != nil {
		return err
	}
	defer logs.close()
	l, err := new(net.ListenConfig).Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	srv := &http.Server{Handler: alertmanager(out), ReadHeaderTimeout: 10 * time.Second}
	served := make(chan error, 1)
	go func() { served <- srv.Serve(l) }()
	defer func() {
		_ = srv.Close()
		<-served
	}()
	if err := out.send(KernelReport{URL: "http://" + l.Addr().String()}); err != nil {
		return err
	}
	for {
		var order KernelOrder
		if err := in.Decode(&order); errors.Is(err, io.EOF) {
			return nil
		} else if err != nil {
			return fmt.Errorf("read order: %w", err)
		}
		if order.Server < 0 || order.Server >= o.Servers {
			return fmt.Errorf("no server %d", order.Server)
		}
		at, err := logs.xid(order)
		if err != nil {
			return err
		}
		if err := out.send(KernelReport{Resource: GPU(order.Server, order.GPU), Written: at.UnixNano()}); err != nil {
			return err
		}
	}
}

type kernelLogs struct {
	files []*os.File
	seq   []uint64
	boot  time.Time
}

func openLogs(o KernelOptions) (*kernelLogs, error) {
	k := &kernelLogs{boot: time.Now().Add(-26 * time.Hour), seq: make([]uint64, o.Servers)}
	if err := os.MkdirAll(o.Dir, 0o700); err != nil {
		return nil, err
	}
	for i := range o.Servers {
		path := KernelLog(o.Dir, i)
		id := fmt.Sprintf("%08x-0000-4000-8000-%012x\n", k.boot.Unix(), i)
		if err := os.WriteFile(path+".boot_id", []byte(id), 0o600); err != nil {
			return nil, err
		}
		f, err := os.OpenFile(filepath.Clean(path), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
		if err != nil {
			return nil, err
		}
		k.files = append(k.files, f)
		if _, err := k.write(i, 6, "Linux version 6.8.0-bench (gcc) #1 SMP"); err != nil {
			return nil, err
		}
	}
	return k, nil
}

func (k *kernelLogs) xid(o KernelOrder) (time.Time, error) {
	pci := gpuPCI(o.GPU)
	return k.write(
		o.Server, 3, fmt.Sprintf("NVRM: Xid (PCI:%s): %d, pid=%d, name=python3, %s", pci[:len(pci)-2], o.XID, 20000+k.seq[o.Server], o.Detail),
	)
}

// write appends a record in the format of /dev/kmsg and returns when it was there.
func (k *kernelLogs) write(server, level int, text string) (time.Time, error) {
	line := fmt.Appendf(nil, "%d,%d,%d,-;%s\n", level, k.seq[server], time.Since(k.boot).Microseconds(), text)
	k.seq[server]++
	if _, err := k.files[server].Write(line); err != nil {
		return time.Time{}, fmt.Errorf("write kernel log: %w", err)
	}
	return time.Now(), nil
}

func (k *kernelLogs) close() {
	for _, f := range k.files {
		_ = f.Close()
	}
}

// alertmanager answers as Alertmanager's API v2 does, and tells of each firing
// cause the first time.
func alertmanager(out *sender) http.Handler {
	seen := make(chan map[string]bool, 1)
	seen <- map[string]bool{}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method != http.MethodPost || r.URL.Path != "/api/v2/alerts" {
			http.NotFound(w, r)
			return
		}
		var alerts []struct {
			Annotations map[string]string `json:"annotations"`
			EndsAt      time.Time         `json:"endsAt"`
		}
		if err := json.NewDecoder(r.Body).Decode(&alerts); err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		w.WriteHeader(http.StatusOK)
		_ = http.NewResponseController(w).Flush()
		now := time.Now()
		known := <-seen
		for _, a := range alerts {
			cause := a.Annotations["root_cause"]
			if known[cause] || !a.EndsAt.After(now) {
				continue
			}
			known[cause] = true
			_ = out.send(KernelReport{Resource: cause, Notified: now.UnixNano(), Fault: a.Annotations["fault"]})
		}
		seen <- known
	})
}
