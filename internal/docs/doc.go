// Package docs writes the reference pages under docs/reference from the code
// itself: commands from their definitions, configuration keys and Auspex's own
// metrics from the sources with their comments and help texts. A test compares
// the committed pages with what comes out; AUSPEX_UPDATE=1 writes them.
package docs

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"strconv"
	"strings"
)

//go:generate env AUSPEX_UPDATE=1 go test -count=1 -run TestReferenceIsWhatTheCodeSays ../../cmd/auspex

const module = "auspex"

// Source is the parsed Go source of the product: no tests, no simulator.
type Source struct {
	packages map[string][]*ast.File // by folder, relative to the module's root
}

// Parse reads the sources under a module's root.
func Parse(root string) (*Source, error) {
	s := &Source{packages: map[string][]*ast.File{}}
	fset := token.NewFileSet()
	err := filepath.WalkDir(root, func(name string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		rel, err := filepath.Rel(root, name)
		if err != nil {
			return err
		}
		rel = filepath.ToSlash(rel)
		if d.IsDir() {
			base := d.Name()
			if rel != "." &&
				(strings.HasPrefix(base, ".") || base == "testdata" || base == "node_modules" || rel == "internal/sim" || rel == "tools") {
				return filepath.SkipDir
			}
			return nil
		}
		if !strings.HasSuffix(rel, ".go") || strings.HasSuffix(rel, "_test.go") || strings.HasSuffix(rel, ".pb.go") {
			return nil
		}
		f, err := parser.ParseFile(fset, name, nil, parser.ParseComments|parser.SkipObjectResolution)
		if err != nil {
			return err
		}
		dir := path.Dir(rel)
		s.packages[dir] = append(s.packages[dir], f)
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("parse sources: %w", err)
	}
	return s, nil
}

// Same reports whether a committed page equals what was generated. With
// AUSPEX_UPDATE=1 it writes the page.
func Same(file string, want []byte) (bool, error) {
	if os.Getenv("AUSPEX_UPDATE") != "" {
		if err := os.MkdirAll(filepath.Dir(file), 0o750); err != nil {
			return false, fmt.Errorf("write page: %w", err)
		}
		if err := os.WriteFile(file, want, 0o600); err != nil {
			return false, fmt.Errorf("write page: %w", err)
		}
	}
	got, err := os.ReadFile(file)
	if err != nil {
		return false, fmt.Errorf("read page: %w", err)
	}
	return string(got) == string(want), nil
}

// text evaluates an expression of string literals, + and names in env.
func text(e ast.Expr, env map[string]string) (string, bool) {
	switch e := e.(type) {
	case *ast.BasicLit:
		if e.Kind != token.STRING {
			return "", false
		}
		s, err := strconv.Unquote(e.Value)
		return s, err == nil
	case *ast.Ident:
		s, ok := env[e.Name]
		return s, ok
	case *ast.ParenExpr:
		return text(e.X, env)
	case *ast.BinaryExpr:
		if e.Op != token.ADD {
			return "", false
		}
		l, okL := text(e.X, env)
		r, okR := text(e.Y, env)
		return l + r, okL && okR
	}
	return "", false
}

// cell makes a text safe inside a Markdown table.
func cell(s string) string {
	return strings.ReplaceAll(strings.Join(strings.Fields(s), " "), "|", `\|`)
}
