package join

import (
	"context"
	"database/sql"
	"fmt"
	"time"

	"auspex/internal/store/audit"
)

const (
	triesEvery = time.Minute
	maxTries   = 10   // of one source within triesEvery, before its unknown tokens are not looked up
	maxWritten = 3    // refusals of one source that are in the audit, within triesEvery
	maxTold    = 30   // and of all sources together
	maxSources = 4096 // that are remembered
)

// try is how often one source was refused since a time.
type try struct {
	since time.Time
	n     int
}

// tries are refusals by source; "" is all of them. The store's lock guards them.
type tries map[string]*try

func (t tries) of(from string, now time.Time) *try {
	x := t[from]
	if x == nil {
		if len(t) >= maxSources {
			all := t[""]
			clear(t)
			t[""] = all
		}
		x = &try{since: now}
		t[from] = x
	}
	if now.Sub(x.since) >= triesEvery {
		*x = try{since: now}
	}
	return x
}

func (s *Store) tooMany(from string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	x := s.tries[from]
	return x != nil && x.n >= maxTries && s.now().Sub(x.since) < triesEvery
}

// knows reports whether a token or a key was known a moment ago.
func (s *Store) knows(hash, key string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.view == nil {
		return false
	}
	_, token := s.view.tokens[hash]
	_, machine := s.view.machines[key]
	return token || machine
}

// refuse counts a refusal, of a token by its name or of none, and returns it. Of one source, and of all, some a minute are
// written at once; the others are counted with the next.
func (s *Store) refuse(ctx context.Context, name string, m Machine, sentence string) error {
	now, from := s.now(), source(m.Address)
	s.mu.Lock()
	own, all := s.tries.of(from, now), s.tries.of("", now)
	own.n++
	write := own.n <= maxWritten && all.n < maxTold
	if write {
		all.n++
	}
	if name != "" {
		r := s.refused[name]
		s.refused[name] = refusal{r.n + 1, now, m.Address}
	}
	s.mu.Unlock()
	if write {
		row := audit.Row{
			Actor: agent(m.Key), Verb: verbDeny, Subject: name, Kind: kindToken, State: "refused",
			Detail: fmt.Sprintf("machine %s, host %q, from %s: %s", m.Key, m.Hostname, m.Address, sentence),
		}
		// It is refused whether or not that can be written; what is counted waits.
		_ = s.flush(ctx, row)
	}
	return refuse("%s", sentence)
}

// sight notes that a machine is back.
func (s *Store) sight(m Machine) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.seen) < maxSeen {
		s.seen[m.Key] = sighting{s.now(), m.Address}
	}
}

// due reports whether there is something to write that has waited long enough.
func (s *Store) due() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.seen)+len(s.refused) > 0 && s.now().Sub(s.flushed) >= flushEvery
}

// flush writes what was seen and refused, all in one transaction.
func (s *Store) flush(ctx context.Context, rows ...audit.Row) error {
	s.mu.Lock()
	seen, refused := s.seen, s.refused
	s.seen, s.refused, s.flushed = map[string]sighting{}, map[string]refusal{}, s.now()
	s.mu.Unlock()
	err := s.db.InTx(ctx, func(tx *sql.Tx) error {
		// In the order of all others: the turn, then the rows, then the audit.
		if _, err := tx.ExecContext(ctx, `UPDATE join_version SET version=version WHERE id=1`); err != nil {
			return err
		}
		for key, x := range seen {
			if _, err := tx.ExecContext(ctx, `UPDATE join_machines SET seen_ns=$1, address=$2 WHERE key=$3 AND seen_ns<$1`,
				x.at.UnixNano(), x.from, key); err != nil {
				return err
			}
		}
		for name, x := range refused {
			if _, err := tx.ExecContext(ctx, `UPDATE join_tokens SET refused=refused+$1, refused_ns=$2, refused_from=$3 WHERE name=$4`,
				x.n, x.at.UnixNano(), x.from, name); err != nil {
				return err
			}
		}
		return s.tell(ctx, tx, rows)
	})
	if err == nil {
		return nil
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for name, x := range refused {
		now := s.refused[name]
		if now.n > 0 {
			x.at, x.from = now.at, now.from
		}
		x.n += now.n
		s.refused[name] = x
	}
	for key, x := range seen {
		if _, newer := s.seen[key]; !newer && len(s.seen) < maxSeen {
			s.seen[key] = x
		}
	}
	return fmt.Errorf("note what dialled in: %w", err)
}
