package main

import (
	"context"
	"errors"
	"time"

	"auspex/internal/run"
	"auspex/internal/store/entity"
	"auspex/internal/store/people"
	"auspex/internal/store/sqldb"
	"auspex/schemas"
)

// tenants of the demo: two teams with somebody in each, who ask for what they need as users do. A
// second run with the same data finds theirs.
func (s *stack) tenants() run.Component {
	return run.Func("tenants", func(ctx context.Context, ready func()) error {
		ready()
		s.seesJobs(ctx)
		for _, one := range []struct {
			user, team, purpose string
			wish                schemas.Wish
			lasts               time.Duration
		}{
			{"li", "vision", "train the detector", schemas.Wish{Servers: 2, Together: "rack"}, 3 * 24 * time.Hour},
			{"bo", "speech", "evaluate checkpoints", schemas.Wish{GPUs: 4, GPUsPerServer: 4}, 8 * time.Hour},
		} {
			r := schemas.AllocationRequest{Purpose: one.purpose, Wish: &one.wish, End: time.Now().Add(one.lasts)}
			var err error
			if r.User, r.Team, err = s.tenant(ctx, one.user, one.team); err == nil {
				err = s.asks(ctx, one.user, r)
			}
			if err != nil && ctx.Err() == nil {
				s.log.Warn("a tenant of the demo goes without", "team", one.team, "error", err)
			}
		}
		<-ctx.Done()
		return nil
	})
}

// seesJobs waits until the scheduler has told what runs, or for a minute: before, servers seem to be free that are not.
func (s *stack) seesJobs(ctx context.Context) {
	for end := time.Now().Add(time.Minute); time.Now().Before(end); {
		for range s.inv.Snapshot().Workloads() {
			return
		}
		if run.Sleep(ctx, time.Second/4) != nil {
			return
		}
	}
}

// tenant makes a user and a team of theirs, once; their ids.
func (s *stack) tenant(ctx context.Context, user, team string) (userID, teamID string, err error) {
	who := people.New(s.db)
	u, err := who.User(ctx, user)
	if errors.Is(err, entity.ErrNone) {
		u, err = who.CreateUser(ctx, "demo", schemas.User{
			Username: user, Email: user + "@example.com", Role: schemas.RoleEngineer, Status: schemas.UserActive,
		})
	}
	if err != nil {
		return "", "", err
	}
	t, err := who.Team(ctx, team)
	if errors.Is(err, entity.ErrNone) {
		t, err = who.CreateTeam(ctx, "demo", schemas.Team{Name: team, Members: []string{user}})
	}
	return u.ID, t.ID, err
}

// asks asks until there is something to be given: a fleet that has just begun is not read yet.
func (s *stack) asks(ctx context.Context, user string, r schemas.AllocationRequest) error {
	ctx = sqldb.WithRequest(ctx, "demo\x00"+user+"\x00"+r.Purpose)
	for {
		_, _, err := s.allocating().Allocate(ctx, user, r)
		if !errors.As(err, new(*schemas.NoFitError)) {
			return err
		}
		if err := run.Sleep(ctx, 5*time.Second); err != nil {
			return err
		}
	}
}
