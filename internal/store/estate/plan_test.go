package estate

import (
	"database/sql"
	"strings"
	"testing"

	"auspex/internal/store/sqldb"
	"auspex/internal/store/sqldb/sqltest"
)

// What a list is asked for is looked up: its cost does not grow with the fleet.
func TestListsLookUpWhatTheyAreAskedFor(t *testing.T) {
	db := sqltest.OpenFile(t)
	for name, c := range map[string]struct {
		query string
		w     *where
		tail  func(args ...any) (string, []any, error)
		by    string
	}{
		"all GPUs":         {gpuColumns + fromGPUs, gpusWhere(&Filter{}), gpuTail, "gpus_name"},
		"GPUs of a server": {gpuColumns + fromGPUs, gpusWhere(&Filter{Server: "s"}), gpuTail, "gpus_of_server"},
		"GPUs in error":    {gpuColumns + fromGPUs, gpusWhere(&Filter{Status: "error"}), gpuTail, "gpus_in_status"},
		"servers in error": {serverColumns + fromServers, serversWhere(&Filter{Status: "error"}), serverTail, "servers_in_status"},
	} {
		t.Run(name, func(t *testing.T) {
			tail, args, err := c.tail(c.w.args...)
			if err != nil {
				t.Fatal(err)
			}
			plan, err := sqldb.Rows(t.Context(), db, func(rows *sql.Rows) (step string, err error) {
				var id, parent, unused int
				return step, rows.Scan(&id, &parent, &unused, &step)
			}, `EXPLAIN QUERY PLAN SELECT `+c.query+` WHERE `+c.w.text.String()+tail, args...)
			if err != nil {
				t.Fatal(err)
			}
			first := ""
			for _, step := range plan {
				if strings.HasPrefix(step, "SEARCH g ") || strings.HasPrefix(step, "SCAN g ") || strings.Contains(c.by, "servers") && strings.HasPrefix(step, "SEARCH s ") {
					first = step
				}
			}
			if !strings.Contains(first, c.by) && !(c.by == "gpus_name" && strings.Contains(first, "sqlite_autoindex_gpus")) {
				t.Errorf("looked up by %q, want %s: %q", first, c.by, plan)
			}
		})
	}
}

func gpuTail(args ...any) (string, []any, error)    { return gpuOrder.Tail("", "", 50, args...) }
func serverTail(args ...any) (string, []any, error) { return serverOrder.Tail("", "", 50, args...) }
