// Command ui bundles the web UI: it reads ui/src and the libraries in
// ui/node_modules (npm ci) and writes api/ui/dist, which the product embeds. It
// prints what the files weigh and fails above the budgets.
package main

import (
	"bytes"
	"compress/gzip"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/evanw/esbuild/pkg/api"
)

// What a browser may have to load, compressed, in one language: before it shows a page of those that are opened first when something is
// wrong, before it shows any page, and in all. Each is little more than it is, so that what grows is seen.
const (
	firstBudget = 78 << 10
	pageBudget  = 114 << 10
	allBudget   = 130 << 10
)

// browserBudget is that of the page on which the API is tried, which nobody loads unasked.
const browserBudget = 520 << 10

// libraries are what ends up in the bundle; their licences travel with it.
var libraries = []string{"preact", "htm", "uplot"}

// browser is the library of the page on which the API is tried. It is taken as it is published.
const browser = "swagger-ui-dist"

// taken are its files and what they are called in docs/: licences too.
var taken = map[string]string{
	"swagger-ui-bundle.js": "swagger-ui-bundle.js", "swagger-ui.css": "swagger-ui.css",
	"LICENSE": "swagger-ui.LICENSE.txt", "NOTICE": "swagger-ui.NOTICE.txt", "swagger-ui-bundle.js.LICENSE.txt": "swagger-ui-bundle.js.LICENSE.txt",
}

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
	if installed(from) {
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

func installed(from string) bool {
	for _, name := range append([]string{browser}, libraries...) {
		if _, err := os.Stat(filepath.Join(from, "node_modules", name)); err != nil {
			return false
		}
	}
	return true
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
		AbsWorkingDir:       filepath.Dir(src), // the hashes take the names of the sources from here
		Outdir:              out, Bundle: true, Write: true, Format: api.FormatESModule, Splitting: true, ChunkNames: "[name]-[hash]",
		MinifyWhitespace: true, MinifyIdentifiers: true, MinifySyntax: true,
		Engines: []api.Engine{
			{Name: api.EngineChrome, Version: "123"}, {Name: api.EngineFirefox, Version: "120"}, {Name: api.EngineSafari, Version: "17.5"},
		},
		LegalComments: api.LegalCommentsNone, LogLevel: api.LogLevelWarning, Charset: api.CharsetUTF8,
	})
	if len(result.Errors) > 0 {
		return errors.New(result.Errors[0].Text)
	}
	scripts, err := graph(out)
	if err != nil {
		return err
	}
	for _, name := range []string{"index.html", "icon.svg"} {
		b, err := os.ReadFile(filepath.Join(src, name))
		if err != nil {
			return err
		}
		if name == "index.html" {
			b = bytes.Replace(b, []byte("<script "), []byte(scripts.preloads()+"<script "), 1)
		}
		if err := os.WriteFile(filepath.Join(out, name), b, 0o644); err != nil {
			return err
		}
	}
	if err := licences(filepath.Join(from, "node_modules"), filepath.Join(out, "licences.txt")); err != nil {
		return err
	}
	if err := browse(src, filepath.Join(from, "node_modules", browser), filepath.Join(out, "docs")); err != nil {
		return err
	}
	return weigh(out)
}

func licences(modules, to string) error {
	var b strings.Builder
	b.WriteString("The scripts and app.css contain these libraries.\n")
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

// browse puts the page on which the API is tried, and its library, into a folder.
func browse(src, library, out string) error {
	if err := os.MkdirAll(out, 0o755); err != nil {
		return err
	}
	files := make(map[string]string)
	for _, name := range []string{"api.html", "api.css", "api.js"} {
		files[filepath.Join(src, "docs", name)] = name
	}
	for name, as := range taken {
		files[filepath.Join(library, name)] = as
	}
	for name, as := range files {
		b, err := os.ReadFile(name)
		if err != nil {
			return err
		}
		if err := os.WriteFile(filepath.Join(out, as), b, 0o644); err != nil {
			return err
		}
	}
	return nil
}

// entry is the script that the page names.
const entry = "app.js"

// imports are, of each script, those that the browser fetches with it, and those that it fetches when it is asked to.
type imports map[string]struct{ at, later []string }

// graph reads which built script imports which.
func graph(out string) (imports, error) {
	result := api.Build(api.BuildOptions{
		EntryPoints: []string{filepath.Join(out, entry)}, Outdir: out, Bundle: true, Splitting: true, Format: api.FormatESModule, Metafile: true,
		LogLevel: api.LogLevelSilent,
	})
	if len(result.Errors) > 0 {
		return nil, fmt.Errorf("read the built scripts: %s", result.Errors[0].Text)
	}
	var meta struct {
		Inputs map[string]struct {
			Imports []struct{ Path, Kind string }
		}
	}
	if err := json.Unmarshal([]byte(result.Metafile), &meta); err != nil {
		return nil, fmt.Errorf("read the built scripts: %w", err)
	}
	g := make(imports)
	for file, in := range meta.Inputs {
		of := g[path.Base(file)]
		for _, i := range in.Imports {
			if i.Kind == "dynamic-import" {
				of.later = append(of.later, path.Base(i.Path))
			} else {
				of.at = append(of.at, path.Base(i.Path))
			}
		}
		g[path.Base(file)] = of
	}
	return g, nil
}

// with are a script and all that is fetched with it, sorted.
func (g imports) with(script string, seen map[string]bool) map[string]bool {
	if seen[script] {
		return seen
	}
	seen[script] = true
	for _, name := range g[script].at {
		g.with(name, seen)
	}
	return seen
}

// preloads have the browser fetch what the entry imports while it reads the entry, not after.
func (g imports) preloads() string {
	var b strings.Builder
	for _, name := range slices.Sorted(maps.Keys(g.with(entry, make(map[string]bool)))) {
		if name != entry {
			fmt.Fprintf(&b, "<link rel=\"modulepreload\" href=%q>\n", name)
		}
	}
	return b.String()
}

// language is the file of the words of one.
var language = regexp.MustCompile(`^(?:en|zh)-`)

// weigh holds what a browser fetches against the budgets: a page needs its own scripts, the shell's and the words of one language.
func weigh(out string) error {
	scripts, err := graph(out)
	if err != nil {
		return err
	}
	sizes := make(map[string]int)
	for name := range scripts {
		if sizes[name], err = packed(out, name); err != nil {
			return err
		}
	}
	base, words := 0, 0
	for _, name := range []string{"index.html", "app.css"} {
		n, err := packed(out, name)
		if err != nil {
			return err
		}
		base += n
	}
	sum := func(names map[string]bool) (n int) {
		for name := range names {
			n += sizes[name]
		}
		return n
	}
	shell := scripts.with(entry, make(map[string]bool))
	all, pages, heaviest := maps.Clone(shell), 0, 0
	for name := range shell {
		for _, at := range scripts[name].later {
			if language.MatchString(at) { // a reader has one
				words = max(words, sizes[at])
				continue
			}
			pages++
			heaviest = max(heaviest, sum(scripts.with(at, maps.Clone(shell))))
			scripts.with(at, all)
		}
	}
	if words == 0 || pages == 0 {
		return fmt.Errorf("%s imports no language or no pages", filepath.Join(out, entry))
	}
	err = errors.Join(
		within("first page", base+words+sum(shell), firstBudget), within("heaviest page", base+words+heaviest, pageBudget),
		within("all pages", base+words+sum(all), allBudget),
	)
	if err != nil {
		return err
	}
	total := 0
	for _, name := range []string{"api.html", "api.css", "api.js", "swagger-ui.css", "swagger-ui-bundle.js"} {
		n, err := packed(out, filepath.Join("docs", name))
		if err != nil {
			return err
		}
		total += n
	}
	return within("docs/api", total, browserBudget)
}

// packed prints and returns what a file weighs compressed.
func packed(out, name string) (int, error) {
	b, err := os.ReadFile(filepath.Join(out, name))
	if err != nil {
		return 0, err
	}
	var packed bytes.Buffer
	z, err := gzip.NewWriterLevel(&packed, gzip.BestCompression)
	if err != nil {
		return 0, err
	}
	if _, err := z.Write(b); err != nil {
		return 0, err
	}
	if err := z.Close(); err != nil {
		return 0, err
	}
	fmt.Printf("%-25s %7d B %7d B gz\n", filepath.ToSlash(name), len(b), packed.Len())
	return packed.Len(), nil
}

func within(what string, total, budget int) error {
	fmt.Printf("%s %.1f KiB gz of %d\n", what, float64(total)/1024, budget>>10)
	if total > budget {
		return fmt.Errorf("%s: %d bytes are above the budget of %d", what, total, budget)
	}
	return nil
}
