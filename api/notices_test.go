package api_test

import (
	"bufio"
	"context"
	"database/sql"
	"encoding/json"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"auspex/api/access"
	"auspex/api/apigen"
	"auspex/internal/store/allocations"
	"auspex/schemas"
)

// overhears reads a stream until ok says that a message of its kind is the one; its id is that of the message.
func (w *world) overhears(t *testing.T, who, last, kind string, do func(), ok func(data string) bool) (id string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, w.base+"api/v1/stream", http.NoBody)
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Authorization", "Bearer "+w.tokens[who])
	if last != "" {
		req.Header.Set("Last-Event-ID", last)
	}
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = res.Body.Close() }()
	event := ""
	for lines := bufio.NewScanner(res.Body); lines.Scan(); {
		switch name, value, _ := strings.Cut(lines.Text(), ": "); name {
		case "id":
			id = value
		case "event":
			if event = value; event == "hello" {
				do()
			}
		case "data":
			if event == kind && ok(value) {
				return id
			}
		}
	}
	t.Fatalf("%s has not heard it", who)
	return ""
}

// What people are told about what they have is on the stream, to them and their teams and to those who
// run the place, again to whoever missed it, and in a list.
func TestNoticesAreOnTheStreamAndInAList(t *testing.T) {
	w, red, blue := tenants(t)
	store := allocations.New(w.db)
	told := func(who, last string, do func(), want ...string) (id string) {
		t.Helper()
		var got []string
		return w.overhears(t, who, last, "notice", do, func(data string) bool {
			var n schemas.Notice
			if err := json.Unmarshal([]byte(data), &n); err != nil {
				t.Fatal(err)
			}
			if who == "li" && n.Subject == blue.ID {
				t.Fatalf("li is told of blue: %s", data)
			}
			got = append(got, n.Type+" "+n.Subject)
			if n.Type == schemas.NoticeEnding && (n.Sentence == nil || n.Sentence.ID != "why.ends_at") {
				t.Errorf("no sentence: %s", data)
			}
			if n.Type == schemas.NoticeDegraded && !strings.Contains(string(n.Data), `"details":{"zh":"掉卡"}`) {
				t.Errorf("in one language: %s", data)
			}
			if n.Type == schemas.NoticeRepair && (n.Sentence == nil || n.Sentence.ID != "why.repair" || !strings.Contains(data, `"why":{"id":"cause","text":{"zh":"掉卡"}}`)) {
				t.Errorf("the repair is told in one language: %s", data)
			}
			return slices.Equal(got, want) || len(got) > len(want)
		})
	}
	nothing := func() {}
	start := w.overhears(t, "li", "", "hello", nothing, func(string) bool { return true })
	end := func() {
		if _, err := store.End(t.Context(), "jo", blue.ID, 0, schemas.AllocationCompleted, "", ""); err != nil {
			t.Fatal(err)
		}
		ends := time.Now().UTC().Add(time.Hour).Truncate(time.Second)
		a, err := store.Change(t.Context(), "li", red.ID, 0, func(a *schemas.Allocation) { a.EndTime = ends })
		if err == nil {
			err = store.Warn(t.Context(), &a)
		}
		if err == nil {
			_, err = store.Break(t.Context(), "allocator", "gpu-r01-01/gpu3", "incident i1", "it fell off the bus", map[string]string{"zh": "掉卡"})
		}
		if err == nil {
			err = w.db.InTx(t.Context(), func(tx *sql.Tx) error {
				return allocations.Tell(t.Context(), tx, time.Now(), "gpu-r01-01", schemas.NoticeRepair, "drain of gpu-r01-01: running. It fell off the bus.",
					&schemas.Sentence{ID: "cause", Text: map[string]string{"zh": "掉卡"}})
			})
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	ours := []string{schemas.NoticeEnding + " " + red.ID, schemas.NoticeDegraded + " " + red.ID, schemas.NoticeRepair + " " + red.ID}
	told("li", "", end, ours...)
	told("li", start, nothing, ours...) // as if it had broken off
	told(access.RoleViewer, start, nothing, append([]string{schemas.NoticeCompleted + " " + blue.ID}, ours...)...)

	list := func(who, query string) (out []string) {
		t.Helper()
		for _, n := range decode[apigen.NoticeList](t, w.do(t, who, http.MethodGet, "notices?sort=time&"+query, "", ""), http.StatusOK).Items {
			out = append(out, n.Type+" "+n.Subject)
		}
		return out
	}
	ours = append([]string{schemas.NoticeActive + " " + red.ID}, ours...)
	if got := list("li", ""); !slices.Equal(got, ours) {
		t.Errorf("li reads %v", got)
	}
	if got := list("li", "subject="+blue.ID); len(got) > 0 {
		t.Errorf("li reads of blue: %v", got)
	}
	if got := list(access.RoleViewer, ""); len(got) != len(ours)+2 {
		t.Errorf("who runs the place reads %v", got)
	}
	if got := list("jo", "type="+schemas.NoticeCompleted); len(got) != 1 {
		t.Errorf("jo reads %v", got)
	}
}
