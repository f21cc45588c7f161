package allocations

import (
	"cmp"
	"context"
	"database/sql"
	"fmt"
	"slices"
	"strings"

	"auspex/internal/store/sqldb"
	"auspex/schemas"
)

// Viewer is who looks: a user, by id, or "" for nobody's token. They see what is theirs and of
// their teams, or, where All, everything.
type Viewer struct {
	User string
	All  bool
}

// teams is the condition that a column of team ids is of a team of the user of parameter n.
func teams(column string, n int) string {
	return fmt.Sprintf(`%s IN (SELECT team_id FROM team_members WHERE user_id=$%d)`, column, n)
}

// Standing is how a server stands for whoever would like to have it.
type Standing struct {
	// Allocation is the live one that has the server as a whole, else the first to begin of
	// those that have parts of it; nil is none that the viewer may know of.
	Allocation *schemas.ServerAllocation
	// Why is why nobody is given the server as a whole now, or "".
	Why string
}

// Standings tells how servers stand, by their id.
func (s *Store) Standings(ctx context.Context, who Viewer, servers []schemas.Server) (map[string]Standing, error) {
	out := make(map[string]Standing, len(servers))
	if len(servers) == 0 {
		return out, nil
	}
	ids, names := make([]string, len(servers)), make([]string, len(servers))
	for i := range servers {
		ids[i], names[i] = servers[i].ID, servers[i].Name
	}
	list, args := sqldb.In(1, names)
	cases, err := sqldb.Rows(ctx, s.db, text, `SELECT DISTINCT subject FROM control_cases WHERE state='open' AND subject IN (`+list+`)`, args...)
	if err != nil {
		return nil, fmt.Errorf("list open cases: %w", err)
	}
	type claim struct {
		server, state string
		begins        int64
		whole, mine   bool
		a             schemas.ServerAllocation
	}
	list, args = sqldb.In(1, ids)
	ill, err := sqldb.Rows(ctx, s.db, text, `SELECT DISTINCT server_id FROM gpus WHERE present AND status || ''='error' AND server_id IN (`+list+`)`, args...)
	if err != nil {
		return nil, fmt.Errorf("list GPUs in error: %w", err)
	}
	list, args = sqldb.In(2, ids)
	claims, err := sqldb.Rows(ctx, s.db, func(rows *sql.Rows) (c claim, err error) {
		var end int64
		err = rows.Scan(&c.server, &c.state, &c.begins, &c.whole, &c.mine, &c.a.ID, &c.a.Status, &c.a.User, &c.a.UserID, &end)
		c.a.EndTime = at(end)
		return c, err
	}, `SELECT c.server_id, c.state, MIN(c.from_ns), MAX(CASE WHEN c.gpu_id IS NULL THEN 1 ELSE 0 END)=1,
a.user_id=$1 OR COALESCE(`+teams("a.team_id", 1)+`, FALSE), a.id, a.status, u.username, a.user_id, a.end_ns
FROM allocation_claims c JOIN allocations a ON a.id=c.allocation_id JOIN users u ON u.id=a.user_id
WHERE c.state<>'released' AND c.server_id IN (`+list+`)
GROUP BY c.server_id, c.state, a.id, a.status, u.username, a.user_id, a.team_id, a.end_ns`, append([]any{who.User}, args...)...)
	if err != nil {
		return nil, fmt.Errorf("list what is had of servers: %w", err)
	}
	slices.SortFunc(claims, func(a, b claim) int {
		return cmp.Or(strings.Compare(a.server, b.server), -compare(a.whole, b.whole), cmp.Compare(a.begins, b.begins), strings.Compare(a.a.ID, b.a.ID))
	})
	taken, now := make(map[string]string), s.now().UnixNano()
	for _, c := range claims {
		if st := out[c.server]; st.Allocation == nil && (who.All || c.mine) && c.state != schemas.ClaimCleaning {
			a := c.a
			st.Allocation = &a
			out[c.server] = st
		}
		switch {
		case c.state == schemas.ClaimCleaning:
			taken[c.server] = cmp.Or(taken[c.server], WhyWaiting)
		case c.state == schemas.ClaimHeld || c.begins <= now:
			taken[c.server] = WhyTaken
		}
	}
	for i := range servers {
		v := &servers[i]
		st := out[v.ID]
		st.Why = cmp.Or(unfit(v), taken[v.ID])
		switch {
		case st.Why != "":
		case slices.Contains(cases, v.Name):
			st.Why = WhyCase
		case slices.Contains(ill, v.ID):
			st.Why = WhyGPU
		}
		out[v.ID] = st
	}
	return out, nil
}

func compare(a, b bool) int {
	switch {
	case a == b:
		return 0
	case a:
		return 1
	}
	return -1
}

// Usage is what a team, or a user without one, has now of what a quota bounds.
type Usage struct {
	Team, User string // names; one of them is ""
	pool, team string // ids
	user       string
	GPUs       int64
	Servers    int64 // whole ones
}

// usage counts what is had now, by team or user and by pool, of those whom a viewer may know.
func (s *Store) usage(ctx context.Context, who Viewer) ([]Usage, error) {
	found, err := sqldb.Rows(ctx, s.db, func(rows *sql.Rows) (u Usage, err error) {
		return u, rows.Scan(&u.team, &u.Team, &u.user, &u.User, &u.pool, &u.GPUs, &u.Servers)
	}, `SELECT COALESCE(a.team_id,''), COALESCE(t.name,''), CASE WHEN a.team_id IS NULL THEN a.user_id ELSE '' END,
CASE WHEN a.team_id IS NULL THEN u.username ELSE '' END, s.pool_id,
SUM(CASE WHEN c.gpu_id IS NULL THEN 0 ELSE 1 END), SUM(CASE WHEN c.gpu_id IS NULL THEN 1 ELSE 0 END)
FROM allocations a JOIN allocation_claims c ON c.allocation_id=a.id JOIN servers s ON s.id=c.server_id JOIN users u ON u.id=a.user_id
LEFT JOIN teams t ON t.id=a.team_id
WHERE a.status IN ('pending','active') AND c.state IN ('booked','held') AND c.from_ns<=$1 AND (c.until_ns>$1 OR c.state='held')
AND ($2 OR a.team_id IS NULL AND a.user_id=$3 OR `+teams("a.team_id", 3)+`)
GROUP BY 1, 2, 3, 4, 5`, s.now().UnixNano(), who.All, who.User)
	if err != nil {
		return nil, fmt.Errorf("count what is used of quotas: %w", err)
	}
	return found, nil
}

// maxUsages is how many teams and users are named of a quota that is that of many.
const maxUsages = 100

// of adds up what a quota bounds: of its team, or of each team and user whom no quota of their own
// binds in that pool, those with the most first.
func (q *quota) of(all []Usage, own map[[2]string]bool) []Usage {
	by, order := make(map[[2]string]*Usage), [][2]string{}
	if q.team != "" {
		k := [2]string{q.team}
		by[k], order = &Usage{Team: q.Team}, append(order, k)
	}
	for i := range all {
		u := &all[i]
		if q.pool != "" && q.pool != u.pool || q.team != "" && q.team != u.team || q.team == "" && own[[2]string{u.team, q.pool}] {
			continue
		}
		k := [2]string{u.team, u.user}
		if by[k] == nil {
			by[k], order = &Usage{Team: u.Team, User: u.User}, append(order, k)
		}
		by[k].GPUs, by[k].Servers = by[k].GPUs+u.GPUs, by[k].Servers+u.Servers
	}
	out := make([]Usage, len(order))
	for i, k := range order {
		out[i] = *by[k]
	}
	slices.SortFunc(out, func(a, b Usage) int {
		return cmp.Or(cmp.Compare(b.GPUs, a.GPUs), cmp.Compare(b.Servers, a.Servers), strings.Compare(a.Team, b.Team), strings.Compare(a.User, b.User))
	})
	return out[:min(len(out), maxUsages)]
}

// Used is a quota, and what is used of it now.
type Used struct {
	schemas.Quota
	Usage []Usage
}

func (s *Store) used(ctx context.Context, who Viewer, found []quota) ([]Used, error) {
	all, err := s.usage(ctx, who)
	if err != nil {
		return nil, err
	}
	teams, err := sqldb.Rows(ctx, s.db, func(rows *sql.Rows) (k [2]string, err error) { return k, rows.Scan(&k[0], &k[1]) },
		`SELECT team_id, COALESCE(pool_id,'') FROM quotas WHERE team_id IS NOT NULL`)
	if err != nil {
		return nil, err
	}
	own := make(map[[2]string]bool, len(teams))
	for _, k := range teams {
		own[k] = true
	}
	out := make([]Used, len(found))
	for i := range found {
		out[i] = Used{found[i].Quota, found[i].of(all, own)}
	}
	return out, nil
}
