package bench

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	mrand "math/rand/v2"
	"net"
	"net/http"
	"strconv"
	"sync"
	"time"

	"auspex/internal/bmc/redfish/redfishtest"
	"auspex/schemas"
)

// PeerPages plays what is read over HTTP: a dcgm-exporter, and a recorded Redfish service where one is named.
const PeerPages = "pages"

// PagesOptions says what is played.
type PagesOptions struct {
	Fields int    `json:"fields"`         // of each of eight GPUs
	Tree   string `json:"tree,omitempty"` // a recording of a Redfish service
}

// PagesReport is what the peer tells at first, and then for each line that it is sent.
type PagesReport struct {
	Address  string `json:"address,omitempty"`
	Requests int64  `json:"requests"` // of the Redfish service
}

func pages(ctx context.Context, options []byte, in *json.Decoder, out *sender) error {
	var o PagesOptions
	if err := json.Unmarshal(options, &o); err != nil {
		return err
	}
	mux := http.NewServeMux()
	mux.Handle("/metrics", &exporter{fields: o.Fields, rng: mrand.New(mrand.NewPCG(1, 13))}) //nolint:gosec // no secret
	tree := redfishtest.New(nil)
	if o.Tree != "" {
		var err error
		if tree, err = redfishtest.Open(o.Tree); err != nil {
			return err
		}
	}
	mux.Handle("/redfish/", tree)
	l, err := new(net.ListenConfig).Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	srv := &http.Server{Handler: mux, ReadHeaderTimeout: 10 * time.Second}
	served := make(chan struct{})
	go func() {
		defer close(served)
		_ = srv.Serve(l)
	}()
	defer func() { _ = srv.Close(); <-served }()
	report := PagesReport{Address: "http://" + l.Addr().String()}
	for {
		if err := out.send(report); err != nil {
			return err
		}
		var ask json.RawMessage
		if in.Decode(&ask) != nil {
			return nil // the input has ended
		}
		report = PagesReport{Requests: tree.Requests.Load()}
	}
}

// exporter is a dcgm-exporter whose values change with each page: what it shows is ours by name as far as we have names.
type exporter struct {
	fields int
	mu     sync.Mutex
	rng    *mrand.Rand
	page   []byte
}

var eventFields = map[string]bool{"DCGM_FI_DEV_XID_ERRORS": true, "DCGM_FI_DEV_ECC_DBE_VOL_TOTAL": true, "DCGM_FI_DEV_CLOCKS_EVENT_REASONS": true}

// ServeHTTP implements [http.Handler].
func (e *exporter) ServeHTTP(w http.ResponseWriter, _ *http.Request) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.page = e.page[:0]
	for f := range e.fields {
		name := fmt.Sprintf("DCGM_FI_PROF_FIELD_%d", f)
		if f < len(schemas.GPUMetrics) {
			name = schemas.GPUMetrics[f].Name
		}
		e.page = fmt.Appendf(e.page, "# HELP %s A field.\n# TYPE %s gauge\n", name, name)
		for g := range GPUsPerServer {
			e.page = fmt.Appendf(
				e.page, "%s{gpu=\"%d\",UUID=%q,pci_bus_id=\"0000%s\",device=\"nvidia%d\",modelName=\"NVIDIA H100 80GB HBM3\",Hostname=\"gpu-1\"} ",
				name, g, gpuUUID(0, g), gpuPCI(g), g,
			)
			v := milli(e.rng.Float64() * 1e4)
			if eventFields[name] { // whose change is an event: nothing happens here
				v = 0
			}
			e.page = append(strconv.AppendFloat(e.page, v, 'f', -1, 64), '\n')
		}
	}
	_, _ = w.Write(e.page)
}

// askPages returns how many requests the Redfish service has had.
func askPages(p *Peer) (int64, error) {
	var r PagesReport
	err := p.Send(struct{}{})
	err = errors.Join(err, p.Receive(&r))
	return r.Requests, err
}
