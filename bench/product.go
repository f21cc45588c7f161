package bench

import (
	"io"
	"log/slog"

	"github.com/prometheus/client_golang/prometheus"

	"auspex/collectors"
	"auspex/internal/bus"
	"auspex/internal/cmdb"
	"auspex/internal/run"
	"auspex/internal/secrets"
	"auspex/internal/store/clickhouse"
	"auspex/internal/store/embedded"
	"auspex/internal/store/records"
	"auspex/internal/store/sqldb"
	"auspex/pipeline/enrich"
	"auspex/pipeline/sink"
)

// Product is the product as it is wired, built and not started.
type Product struct {
	Log     *slog.Logger
	Metrics *prometheus.Registry
	Data    string // folder of what it keeps
	Bus     string // folder of its bus, in Data

	Collect    collectors.RunnerConfig
	Collectors map[string]collectors.Config
	Engine     embedded.Config
	History    clickhouse.Config
	Sink       sink.Config

	// Components are the parts of these names, in this order: "state", "bus" and the
	// roles of `auspex run`.
	Components func(names ...string) []run.Component
	// Parts are what the parts that run have opened.
	Parts func() Parts
}

// Parts is what is open in a product: nil where its component does not run.
type Parts struct {
	Bus       bus.Bus
	DB        *sqldb.DB
	Records   *records.Store
	Inventory *cmdb.Inventory
	Enrich    *enrich.Enricher
	Secrets   *secrets.Store
	API       string // address of the API, with a slash at the end
}

// Builder builds a product with settings (key=value, as `auspex run --set` takes
// them) over the defaults; it complains to errw.
type Builder func(set []string, errw io.Writer) (*Product, error)
