package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"time"

	"auspex/internal/cmdb"
	"auspex/internal/decode"
	"auspex/internal/textfile"
	"auspex/internal/usage"
	"auspex/pipeline/enrich"
	"auspex/schemas"
)

// DecodeOptions says what Decode reads. Files may be compressed with gzip or zstd.
type DecodeOptions struct {
	Format   string // one of DecodeFormats
	Host     string // the server that the text comes from; empty takes what the text says
	Boot     string // when it booted, RFC 3339; empty leaves times since boot at 1970
	Topology string // inventory, formats section 1; empty resolves nothing
	File     string // "-" or empty is the standard input
	Strict   bool   // a bad line stops the command
	MaxSize  int64  // bytes of text, unpacked; 0 is textfile.MaxUnpacked for a packed one
}

// DecodeFormats lists the formats that Decode reads.
func DecodeFormats() []string { return decode.Formats() }

// Decode turns raw vendor text into events.jsonl (formats, section 4). Bad lines
// are named on errw and skipped; with Strict the first is the error.
func Decode(ctx context.Context, o DecodeOptions, in io.Reader, out, errw io.Writer) error {
	if !slices.Contains(DecodeFormats(), o.Format) {
		return fmt.Errorf("%w: %w: %q; known are %s", usage.Err, decode.ErrUnknownFormat, o.Format, strings.Join(DecodeFormats(), ", "))
	}
	opts := decode.Options{Format: o.Format, Name: textfile.Name(o.File), Host: o.Host, Strict: o.Strict, MaxSize: o.MaxSize}
	if o.Boot != "" {
		t, err := time.Parse(time.RFC3339Nano, o.Boot)
		if err != nil {
			return fmt.Errorf("%w: boot time %.60q is not RFC 3339, such as 2026-01-01T00:00:00Z", usage.Err, o.Boot)
		}
		opts.Boot = t
	}
	if o.Topology != "" {
		if o.Topology == textfile.Stdin && textfile.Name(o.File) == textfile.StdinName {
			return fmt.Errorf("%w: text and inventory cannot both come from standard input", usage.Err)
		}
		t, problems, err := cmdb.ReadFile(o.Topology, in)
		if err != nil {
			return err
		}
		if o.Strict && len(problems) > 0 {
			return fmt.Errorf("read inventory %s: %w", textfile.Name(o.Topology), cmdb.Err(problems))
		}
		for _, p := range problems {
			_, _ = fmt.Fprintln(errw, p.In(o.Topology))
		}
		inv, _ := cmdb.FromTopology(t)
		e := enrich.New(inv, nil)
		opts.Resolve = func(ev *schemas.Event) string { return e.Event(ev).Resource }
	}
	if opts.Name != textfile.StdinName {
		f, err := os.Open(o.File)
		if err != nil {
			return err
		}
		defer func() { _ = f.Close() }()
		in = f
	}
	p := textfile.NewProgress(errw, out)
	defer p.Clear()
	_, err := decode.Run(ctx, p.Reading(opts.Name, in), out, p.Words(errw), opts)
	return err
}
