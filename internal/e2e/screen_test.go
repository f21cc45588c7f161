package e2e

import (
	"errors"
	"fmt"
	"regexp"
	"strings"
	"testing"

	"github.com/chromedp/chromedp"

	"github.com/auspex-dev/auspex/internal/browsertest"
)

// TestDemoIsSeenInTheBrowser opens the address that the demo prints and only
// waits: the three incidents and the fan come by themselves, and the map shows the
// lost feed, the servers that hang on it, and a rack that nothing happened to.
func TestDemoIsSeenInTheBrowser(t *testing.T) {
	whole(t)
	browser := browsertest.Chromium(t)
	dir := dataDir(t)
	p := startDemo(t, dir)
	address := regexp.MustCompile(`ready (http\S+)`).FindStringSubmatch(p.out.String())
	if address == nil || !strings.Contains(address[1], "#login=") {
		t.Fatalf("no address with a code: %q", p.out.String())
	}
	eval := func(js string) (string, error) {
		return chromedp.Run(browser, chromedp.Evaluate[string](js, chromedp.EvalAwaitPromise))
	}
	if err := chromedp.Do(browser, chromedp.Navigate(address[1])); err != nil {
		t.Fatal(err)
	}
	if _, err := eval(`localStorage.setItem('language', 'en'); location.reload(); ''`); err != nil {
		t.Fatal(err)
	}
	p.await("the fleet", func() error {
		if s, err := eval(`String(Boolean(document.querySelector('canvas')))`); err != nil || s != "true" {
			return fmt.Errorf("no map yet: %w", err)
		}
		return nil
	})
	if _, err := eval(`window.neverReloaded = 'yes'`); err != nil {
		t.Fatal(err)
	}
	for what, want := range map[string]string{
		"the feed": `Feed [AB] of rack \S+ lost power; 8 servers hang on it`, "the GPU": `GPU \d of \S+ fell off the bus`,
		"the job": `\S+ crashed on \d+ servers; no hardware is at fault`, "the fan": `\S+/fan\d\s+Fan wears out`,
	} {
		sentence := regexp.MustCompile(want)
		p.await(what, func() error {
			text, err := eval(`document.querySelector('main').innerText`)
			if err == nil && !sentence.MatchString(text) {
				err = fmt.Errorf("the page says %q", text)
			}
			return err
		})
	}
	feed := planned(t, dir)["feed_loss"][0].Resource // pdu-r01-a
	rack, side := feed[strings.Index(feed, "-")+1:strings.LastIndex(feed, "-")], strings.Index("ab", feed[len(feed)-1:])
	p.await("the map", func() error {
		got, err := eval(fmt.Sprintf(`fetch('api/v1/fleet').then((r) => r.json()).then(({ racks, servers }) => {
			const at = racks.findIndex((r) => r.id.endsWith(%q));
			const of = (k) => [...new Set(servers.state.filter((_, i) => servers.rack[i] === k))].join();
			return [racks[at].feeds[%d], of(at), window.neverReloaded].join(' ');
		})`, rack, side))
		if err == nil && got != "2 3 yes" { // critical, affected
			err = errors.New("feed, states of its servers, page: " + got)
		}
		return err
	})
	for _, path := range []string{"actions", "predictions"} {
		if err := chromedp.Do(browser, chromedp.Navigate(p.url+path)); err != nil {
			t.Fatal(err)
		}
		p.await(path, func() error {
			text, err := eval(`document.querySelector('main')?.innerText ?? ''`)
			want := map[string]string{"actions": "Chain holds", "predictions": "Can I believe it?"}[path]
			if err == nil && !strings.Contains(text, want) {
				err = fmt.Errorf("the page says %q", text)
			}
			return err
		})
	}
}
