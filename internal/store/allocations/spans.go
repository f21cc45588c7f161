package allocations

import (
	"context"
	"database/sql"
	"fmt"
	"time"

	"auspex/internal/store/sqldb"
	"auspex/schemas"
)

// Span is a time in which somebody had a server or a GPU.
type Span struct {
	Server string    // its name
	GPU    string    // its name; "" is the server as a whole
	From   time.Time // when the allocation became active
	Until  time.Time // zero is that it is active still
}

// Spans returns what a user and their teams have and had, by server.
func (s *Store) Spans(ctx context.Context, user string) ([]Span, error) {
	found, err := sqldb.Rows(ctx, s.db, func(rows *sql.Rows) (sp Span, err error) {
		var from, until int64
		err = rows.Scan(&sp.Server, &sp.GPU, &from, &until)
		sp.From, sp.Until = at(from), at(until)
		return sp, err
	}, `SELECT s.name, COALESCE(g.name, ''), a.active_ns, a.ended_ns
FROM allocations a JOIN allocation_claims c ON c.allocation_id=a.id JOIN servers s ON s.id=c.server_id LEFT JOIN gpus g ON g.id=c.gpu_id
WHERE a.active_ns>0 AND (c.gpu_id IS NULL OR NOT a.exclusive) AND (a.user_id=$1 OR `+teams("a.team_id", 1)+`) ORDER BY s.name, a.active_ns`, user)
	if err != nil {
		return nil, fmt.Errorf("list what %s has and had: %w", user, err)
	}
	return found, nil
}

// Held returns the allocations that had one of some servers, by name, or a part of it, as active
// ones at some time of a span.
func (s *Store) Held(ctx context.Context, servers []string, from, until time.Time) ([]schemas.Allocation, error) {
	if len(servers) == 0 {
		return nil, nil
	}
	in, args := sqldb.In(3, servers)
	return list(ctx, s.db, `a.active_ns>0 AND a.active_ns<=$1 AND (a.ended_ns=0 OR a.ended_ns>=$2) AND a.id IN
(SELECT c.allocation_id FROM allocation_claims c JOIN servers s ON s.id=c.server_id WHERE s.name IN (`+in+`)) ORDER BY a.active_ns, a.id`,
		append([]any{until.UnixNano(), from.UnixNano()}, args...)...)
}
