package enrol

import (
	"context"
	"database/sql"
	"fmt"
	"time"

	"auspex/internal/store/sqldb"
)

// Agent is what was read of a node agent last.
type Agent struct {
	Server  string    `json:"server,omitempty"`  // where it stood
	Machine string    `json:"machine,omitempty"` // key of a machine that dials in
	Token   string    `json:"token,omitempty"`
	Address string    `json:"address,omitempty"`
	Version string    `json:"version,omitempty"`
	Refused string    `json:"refused,omitempty"` // why its description is not taken
	Since   time.Time `json:"since,omitzero"`    // when that began
	Read    time.Time `json:"read"`
}

// subject is whom it is about.
func (a *Agent) subject() string {
	if a.Machine != "" {
		return a.Machine
	}
	return a.Server
}

// Note keeps what was read of an agent; that it is refused for the same as before is not new.
func (s *Store) Note(ctx context.Context, a *Agent) error {
	now, since := s.now().UnixNano(), int64(0)
	if a.Refused != "" {
		since = now
	}
	_, err := s.db.ExecContext(ctx, `INSERT INTO enrol_agents (subject, server, machine, token, address, version, refused, refused_ns, read_ns)
VALUES ($1,$2,$3,$4,$5,$6,$7,$8,$9) ON CONFLICT (subject) DO UPDATE SET server=excluded.server, token=excluded.token, address=excluded.address,
version=CASE WHEN excluded.version='' THEN enrol_agents.version ELSE excluded.version END,
refused_ns=CASE WHEN enrol_agents.refused=excluded.refused THEN enrol_agents.refused_ns ELSE excluded.refused_ns END,
refused=excluded.refused, read_ns=excluded.read_ns`, a.subject(), a.Server, a.Machine, a.Token, a.Address, a.Version, a.Refused, since, now)
	if err != nil {
		return fmt.Errorf("note what was read of the agent of %s: %w", a.subject(), err)
	}
	return nil
}

const selectAgents = `SELECT server, machine, token, address, version, refused, refused_ns, read_ns FROM enrol_agents`

func scanAgent(rows *sql.Rows) (a Agent, err error) {
	var since, read int64
	err = rows.Scan(&a.Server, &a.Machine, &a.Token, &a.Address, &a.Version, &a.Refused, &since, &read)
	if a.Read = time.Unix(0, read).UTC(); since != 0 {
		a.Since = time.Unix(0, since).UTC()
	}
	return a, err
}

// Agents returns what was read last of all agents, by the key of their machine, or by server
// where they do not dial in.
func (s *Store) Agents(ctx context.Context) (map[string]Agent, error) {
	all, err := sqldb.Rows(ctx, s.db, scanAgent, selectAgents)
	if err != nil {
		return nil, fmt.Errorf("read what is known of agents: %w", err)
	}
	out := make(map[string]Agent, len(all))
	for _, a := range all {
		out[a.subject()] = a
	}
	return out, nil
}

// refusedOrder is what refused descriptions may be sorted by.
var refusedOrder = sqldb.Order[Agent]{
	ID: sqldb.Key[Agent]{SQL: "subject", Of: func(a *Agent) any { return a.subject() }}, Usual: "-since",
	By: map[string]sqldb.Key[Agent]{
		"since": {SQL: "refused_ns", Of: func(a *Agent) any { return a.Since.UnixNano() }},
		"read":  {SQL: "read_ns", Of: func(a *Agent) any { return a.Read.UnixNano() }},
	},
}

// Refused returns a page of the agents whose descriptions are not taken, the newest first where no order is
// asked for; next is the cursor of the following page. Machines that have been revoked, and servers that
// are gone from the inventory, are none.
func (d *Desk) Refused(ctx context.Context, sort, after string, limit int) (out []Agent, next string, err error) {
	tail, args, err := refusedOrder.Tail(sort, after, limit)
	if err != nil {
		return nil, "", fmt.Errorf("list refused descriptions: %w", err)
	}
	found, err := sqldb.Rows(ctx, d.db, scanAgent, selectAgents+` WHERE refused<>''`+tail, args...)
	if err != nil {
		return nil, "", fmt.Errorf("list refused descriptions: %w", err)
	}
	found, next = refusedOrder.Page(found, sort, limit)
	admitted, err := d.Machines.Admitted(ctx)
	if err != nil {
		return nil, "", fmt.Errorf("list refused descriptions: %w", err)
	}
	snap := d.Inventory.Snapshot()
	for _, a := range found {
		_, there := snap.Resource(a.Server)
		if _, may := admitted[a.Machine]; may || a.Machine == "" && there {
			out = append(out, a)
		}
	}
	return out, next, nil
}
