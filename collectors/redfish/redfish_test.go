package redfish

import (
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"testing"

	"go.uber.org/goleak"

	"auspex/collectors/collectortest"
	"auspex/internal/bmc/redfish/redfishtest"
	"auspex/schemas"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func target(url string) schemas.Resource {
	return schemas.Resource{ID: "gpu-r01-01", Kind: schemas.KindServer, Attrs: schemas.AttrsOf(map[string]string{
		schemas.AttrRedfishURL: url, schemas.AttrCredential: "bmc",
	})}
}

func openTree(t testing.TB, input string) *redfishtest.Tree {
	t.Helper()
	file := filepath.Join(input, "tree.tar.gz")
	if _, err := os.Stat(file); err != nil {
		file = input
	}
	tree, err := redfishtest.Open(file)
	if err != nil {
		t.Fatal(err)
	}
	return tree
}

func serve(t testing.TB, h http.Handler) string {
	t.Helper()
	s := httptest.NewServer(h)
	t.Cleanup(s.Close)
	return s.URL
}

func TestConformance(t *testing.T) {
	collectortest.Run(t, collectortest.Harness{
		Name: Name,
		Serve: func(t testing.TB, input string) schemas.Resource {
			return target(serve(t, openTree(t, input)))
		},
		Garbage: func(t testing.TB) schemas.Resource {
			return target(serve(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				_, _ = w.Write([]byte(`{"Members": [{"@odata.id": 7`))
			})))
		},
		Dead: target("http://127.0.0.1:1"), At: func(addr string) schemas.Resource { return target("http://" + addr) },
	})
}
