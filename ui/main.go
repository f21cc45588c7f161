// Command ui bundles the web UI: it reads ui/src and the libraries in
// ui/node_modules (npm ci) and writes api/ui/dist, which the product embeds. It
// prints what the files weigh and fails above the budget.
package main

import (
	"bytes"
	"compress/gzip"
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"github.com/evanw/esbuild/pkg/api"
)

// budget is what a browser may have to load before the first page, compressed.
const budget = 120 << 10

// libraries are what ends up in the bundle; their licences travel with it.
var libraries = []string{"preact", "htm", "uplot"}

func main() {
	from := flag.String("from", "ui", "folder of the sources")
	to := flag.String("to", filepath.Join("api", "ui", "dist"), "folder of the built files")
	flag.Parse()
	if err := install(*from); err != nil {
		fmt.Fprintln(os.Stderr, "ui:", err)
		os.Exit(1)
	}
	if err := build(*from, *to); err != nil {
		fmt.Fprintln(os.Stderr, "ui:", err)
		os.Exit(1)
	}
}

// install fetches the libraries once, as package-lock.json fixes them.
func install(from string) error {
	if _, err := os.Stat(filepath.Join(from, "node_modules", "preact")); err == nil {
		return nil
	}
	npm, err := exec.LookPath("npm")
	if err != nil {
		return errors.New("npm is missing; it fetches the libraries of the web UI (the built UI in api/ui/dist works without it)")
	}
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, npm, "ci", "--no-audit", "--no-fund", "--ignore-scripts")
	cmd.Dir, cmd.Stderr = from, os.Stderr
	if err := cmd.Run(); err != nil {
		return fmt.Errorf("npm ci: %w", err)
	}
	return nil
}

func build(from, to string) error {
	src, err := filepath.Abs(filepath.Join(from, "src"))
	if err != nil {
		return err
	}
	out, err := filepath.Abs(to)
	if err != nil {
		return err
	}
	if err := os.RemoveAll(out); err != nil {
		return err
	}
	result := api.Build(api.BuildOptions{
		EntryPointsAdvanced: []api.EntryPoint{{InputPath: filepath.Join(src, "main.js"), OutputPath: "app"}},
		Outdir:              out, Bundle: true, Write: true, Format: api.FormatESModule, Splitting: true, ChunkNames: "[name]",
		MinifyWhitespace: true, MinifyIdentifiers: true, MinifySyntax: true,
		Engines: []api.Engine{
			{Name: api.EngineChrome, Version: "123"}, {Name: api.EngineFirefox, Version: "120"}, {Name: api.EngineSafari, Version: "17.5"},
		},
		LegalComments: api.LegalCommentsNone, LogLevel: api.LogLevelWarning, Charset: api.CharsetUTF8,
	})
	if len(result.Errors) > 0 {
		return errors.New(result.Errors[0].Text)
	}
	for _, name := range []string{"index.html", "icon.svg"} {
		b, err := os.ReadFile(filepath.Join(src, name))
		if err != nil {
			return err
		}
		if err := os.WriteFile(filepath.Join(out, name), b, 0o644); err != nil {
			return err
		}
	}
	if err := licences(filepath.Join(from, "node_modules"), filepath.Join(out, "licences.txt")); err != nil {
		return err
	}
	return weigh(out)
}

func licences(modules, to string) error {
	var b strings.Builder
	b.WriteString("app.js and app.css contain these libraries.\n")
	for _, name := range libraries {
		text, err := os.ReadFile(filepath.Join(modules, name, "LICENSE"))
		if err != nil {
			return err
		}
		fmt.Fprintf(&b, "\n===== %s =====\n%s", name, bytes.TrimRight(text, "\n"))
		b.WriteString("\n")
	}
	return os.WriteFile(to, []byte(b.String()), 0o644)
}

func weigh(out string) error {
	total, language := 0, 0
	for _, name := range []string{"index.html", "app.css", "app.js", "en.js", "zh.js"} {
		b, err := os.ReadFile(filepath.Join(out, name))
		if err != nil {
			return err
		}
		var packed bytes.Buffer
		z, err := gzip.NewWriterLevel(&packed, gzip.BestCompression)
		if err != nil {
			return err
		}
		if _, err := z.Write(b); err != nil {
			return err
		}
		if err := z.Close(); err != nil {
			return err
		}
		if name == "en.js" || name == "zh.js" { // a reader has one
			language = max(language, packed.Len())
		} else {
			total += packed.Len()
		}
		fmt.Printf("%-12s %7d B %7d B gz\n", name, len(b), packed.Len())
	}
	total += language
	fmt.Printf("total %.1f KiB gz of %d\n", float64(total)/1024, budget>>10)
	if total > budget {
		return fmt.Errorf("%d bytes are above the budget of %d", total, budget)
	}
	return nil
}
