// Package browsertest starts a Chromium for tests that look at pages.
package browsertest

import (
	"context"
	"os"
	"os/exec"
	"slices"
	"testing"

	"github.com/chromedp/chromedp"
)

// Chromium returns a browser that ends with the test. Without one the test is
// left out, unless AUSPEX_REQUIRE_BROWSER asks for it. AUSPEX_CHROMIUM names one
// that is not on the path.
func Chromium(t *testing.T) context.Context {
	t.Helper()
	if testing.Short() {
		t.Skip("short: the pages are not looked at")
	}
	path := os.Getenv("AUSPEX_CHROMIUM")
	for _, name := range []string{"chromium", "chromium-browser", "google-chrome"} {
		if path != "" {
			break
		}
		path, _ = exec.LookPath(name)
	}
	if path == "" {
		if os.Getenv("AUSPEX_REQUIRE_BROWSER") != "" {
			t.Fatal("no Chromium is installed, and AUSPEX_REQUIRE_BROWSER asks for one")
		}
		t.Skip("no Chromium is installed; the pages are not looked at")
	}
	flags := append(slices.Clone(chromedp.DefaultExecAllocatorOptions[:]), chromedp.ExecPath(path), chromedp.NoSandbox, chromedp.DisableGPU,
		chromedp.Flag("disable-quic", true), chromedp.Flag("disable-component-update", true),
		chromedp.Flag("disable-background-networking", true),
		chromedp.Flag("disable-dev-shm-usage", true), chromedp.UserDataDir(t.TempDir()))
	ctx, cancel := chromedp.NewExecAllocator(context.Background(), flags...)
	t.Cleanup(cancel)
	ctx, cancel = chromedp.NewContext(ctx)
	t.Cleanup(cancel)
	if err := chromedp.Do(ctx); err != nil {
		t.Fatalf("start %s: %v", path, err)
	}
	return ctx
}
