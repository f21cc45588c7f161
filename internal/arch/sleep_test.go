package arch

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"strings"
	"testing"
)

// TestTestsDoNotSleep: a test that waits for something polls for it with a bound
// (internal/waittest), or lets time pass in a bubble of testing/synctest. A sleep that
// is neither models time of the world, and says beside it why it is there.
func TestTestsDoNotSleep(t *testing.T) {
	root := os.DirFS("../..")
	err := fs.WalkDir(root, ".", func(path string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case d.IsDir() && path != "." && (strings.HasPrefix(d.Name(), ".") || d.Name() == "testdata" || d.Name() == "node_modules"):
			return fs.SkipDir
		case d.IsDir() || !strings.HasSuffix(path, "_test.go"):
			return nil
		}
		b, err := fs.ReadFile(root, path)
		if err != nil {
			return err
		}
		for _, line := range sleeps(t, path, b) {
			t.Errorf("%s:%d: sleeps, and does not say why", path, line)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}

// sleeps returns the lines of a file that call time.Sleep without a word, outside of
// the bubbles of testing/synctest. A function that is called in bubbles alone says so
// where it sleeps.
func sleeps(t *testing.T, path string, src []byte) (lines []int) {
	t.Helper()
	set := token.NewFileSet()
	f, err := parser.ParseFile(set, path, src, parser.ParseComments)
	if err != nil {
		t.Fatal(err)
	}
	says := map[int]bool{}
	for _, g := range f.Comments {
		for line := set.Position(g.Pos()).Line; line <= set.Position(g.End()).Line; line++ {
			says[line] = true
		}
	}
	called := func(c *ast.CallExpr, pkg, name string) bool {
		s, ok := c.Fun.(*ast.SelectorExpr)
		if !ok || s.Sel.Name != name {
			return false
		}
		x, ok := s.X.(*ast.Ident)
		return ok && x.Name == pkg
	}
	ast.Inspect(f, func(n ast.Node) bool {
		c, ok := n.(*ast.CallExpr)
		switch {
		case !ok:
		case called(c, "synctest", "Test"):
			return false
		case called(c, "time", "Sleep"):
			if line := set.Position(c.Pos()).Line; !says[line] {
				lines = append(lines, line)
			}
		}
		return true
	})
	return lines
}

func TestASleepIsFound(t *testing.T) {
	const src = `package x
func TestX(t *testing.T) {
	synctest.Test(t, func(t *testing.T) { time.Sleep(1) })
	time.Sleep(2) // the outage
	for !ok() { time.Sleep(3) }
}`
	if got := sleeps(t, "x_test.go", []byte(src)); len(got) != 1 || got[0] != 5 {
		t.Errorf("lines %v, want 5 alone", got)
	}
}
