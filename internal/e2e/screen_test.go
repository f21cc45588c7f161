package e2e

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/chromedp/chromedp"

	"auspex/internal/browsertest"
)

// TestDemoIsSeenInTheBrowser opens the address that the demo prints and only
// waits: the three incidents and the fan come by themselves, and the map shows the
// lost feed, the servers that hang on it, and a rack that nothing happened to.
func TestDemoIsSeenInTheBrowser(t *testing.T) {
	beside(t)
	browser := browsertest.Chromium(t)
	dir := dataDir(t)
	p := startDemo(t, dir)
	address := regexp.MustCompile(`ready (http\S+)`).FindStringSubmatch(p.out.String())
	if address == nil || !strings.Contains(address[1], "#login=") {
		t.Fatalf("no address with a code: %q", p.out.String())
	}
	eval := func(js string) (string, error) {
		ctx, cancel := context.WithTimeout(browser, 10*time.Second) // a page that hangs is a page that is not there
		defer cancel()
		return chromedp.Run(ctx, chromedp.Evaluate[string](js, chromedp.EvalAwaitPromise))
	}
	visit := func(url string) {
		t.Helper()
		ctx, cancel := context.WithTimeout(browser, patience)
		defer cancel()
		if err := chromedp.Do(ctx, chromedp.Navigate(url)); err != nil {
			t.Fatal(err)
		}
	}
	visit(address[1])
	p.await("the fleet", func() error {
		s, err := eval(`document.querySelector('canvas') ? 'map' : document.body.innerText`)
		if err == nil && s != "map" {
			err = fmt.Errorf("no map yet: %q", s)
		}
		return err
	})
	if _, err := eval(`window.neverReloaded = 'yes'`); err != nil {
		t.Fatal(err)
	}
	missing := map[string]*regexp.Regexp{ // a sentence leaves the page when what it tells of ends
		"the feed": regexp.MustCompile(`Feed [AB] of rack \S+ lost power; 8 servers hang on it`),
		"the GPU":  regexp.MustCompile(`GPU \d of \S+ fell off the bus`),
		"the job":  regexp.MustCompile(`\S+ crashed on \d+ servers; no hardware is at fault`),
		"the fan":  regexp.MustCompile(`\S+/fan\d\s+Fan failure`),
	}
	p.awaitFor(2*patience, "the four sentences", func() error {
		text, err := eval(`document.querySelector('main').innerText`)
		maps.DeleteFunc(missing, func(_ string, sentence *regexp.Regexp) bool { return sentence.MatchString(text) })
		if err == nil && len(missing) > 0 {
			err = fmt.Errorf("%v are missing, the page says %q", slices.Collect(maps.Keys(missing)), text)
		}
		return err
	})
	feed := planned(t, dir)["feed_loss"][0].Resource // pdu-r01-a
	rack, side := feed[strings.Index(feed, "-")+1:strings.LastIndex(feed, "-")], strings.Index("ab", feed[len(feed)-1:])
	p.await("the map", func() error {
		got, err := eval(fmt.Sprintf(`fetch('api/v1/fleet').then((r) => r.json()).then(({ racks, servers }) => {
			const at = racks.findIndex((r) => r.name.endsWith(%q));
			const of = (k) => [...new Set(servers.state.filter((_, i) => servers.rack[i] === k))].join();
			return [racks[at].feeds[%d], of(at), window.neverReloaded].join(' ');
		})`, rack, side))
		if err == nil && got != "2 3 yes" { // critical, affected
			err = errors.New("feed, states of its servers, page: " + got)
		}
		return err
	})
	for _, path := range []string{"actions", "predictions", "agents"} {
		visit(p.url + path)
		p.await(path, func() error {
			text, err := eval(`document.querySelector('main')?.innerText ?? ''`)
			want := map[string]string{"actions": "Chain holds", "predictions": "How reliable are they?", "agents": "No agent is out of contact; every server has one."}[path]
			if err == nil && !strings.Contains(text, want) {
				err = fmt.Errorf("the page says %q", text)
			}
			return err
		})
	}
}
