package app

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"time"

	"github.com/auspex-dev/auspex/internal/cmdb"
	"github.com/auspex-dev/auspex/internal/decode"
	"github.com/auspex-dev/auspex/pipeline/enrich"
	"github.com/auspex-dev/auspex/schemas"
)

// DecodeOptions says what Decode reads. Files may be compressed with gzip or zstd.
type DecodeOptions struct {
	Format   string // one of DecodeFormats
	Host     string // the server that the text comes from; empty takes what the text says
	Boot     string // when it booted, RFC 3339; empty leaves times since boot at 1970
	Topology string // inventory, formats section 1; empty resolves nothing
	File     string // "-" or empty is the standard input
	Strict   bool   // a bad line stops the command
}

// DecodeFormats lists the formats that Decode reads.
func DecodeFormats() []string { return decode.Formats() }

// Decode turns raw vendor text into events.jsonl (formats, section 4). Bad lines
// are named on errw and skipped; with Strict the first is the error.
func Decode(ctx context.Context, o DecodeOptions, in io.Reader, out, errw io.Writer) error {
	opts := decode.Options{Format: o.Format, Name: o.File, Host: o.Host, Strict: o.Strict}
	if o.Boot != "" {
		t, err := time.Parse(time.RFC3339Nano, o.Boot)
		if err != nil {
			return fmt.Errorf("%w: boot time %.60q is not RFC 3339, such as 2026-01-01T00:00:00Z", ErrUsage, o.Boot)
		}
		opts.Boot = t
	}
	if o.Topology != "" {
		t, problems, err := cmdb.ReadFile(o.Topology)
		if err != nil {
			return err
		}
		if o.Strict && len(problems) > 0 {
			return fmt.Errorf("read inventory %s: %w", o.Topology, cmdb.Err(problems))
		}
		for _, p := range problems {
			_, _ = fmt.Fprintf(errw, "%s: %s\n", o.Topology, p)
		}
		inv, _ := cmdb.FromTopology(t)
		e := enrich.New(inv, nil)
		opts.Resolve = func(ev *schemas.Event) string { return e.Event(ev).Resource }
	}
	if o.File == "" || o.File == "-" {
		opts.Name = "standard input"
	} else {
		f, err := os.Open(o.File)
		if err != nil {
			return err
		}
		defer func() { _ = f.Close() }()
		in = f
	}
	_, err := decode.Run(ctx, in, out, errw, opts)
	if errors.Is(err, decode.ErrUnknownFormat) {
		return fmt.Errorf("%w: %w", ErrUsage, err)
	}
	return err
}
