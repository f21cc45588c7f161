package control

import (
	"cmp"
	"context"
	"database/sql"
	"encoding/json"
	"fmt"
	"net/url"
	"slices"
	"strings"

	"github.com/google/uuid"

	"auspex/control/messages"
	"auspex/control/policy"
	"auspex/internal/reasons"
	"auspex/internal/store/estate"
	"auspex/internal/store/hooks"
	"auspex/internal/store/sqldb"
	"auspex/schemas"
)

// kindQuarantine is a drain that lasts until a person gives the server back.
const kindQuarantine = "quarantine"

// quarantine keeps a server out that the ladder could not repair, where a later rung says so; what stands in the
// way of that is told to a person, as for every rung.
func (c *Controller) quarantine(ctx context.Context, k *climb, p policy.Policy, after int) error {
	for i := after + 1; i < len(p.Ladder); i++ {
		if p.Ladder[i].Kind == kindQuarantine && !p.Ladder[i].Person {
			skipped, err := c.skip(ctx, k, p, i)
			if err == nil && !skipped {
				_, _, err = c.rung(ctx, k, p, i)
			}
			return err
		}
	}
	return nil
}

// holds reports whether a step keeps its server from whoever would like to have it, after its case too.
func holds(k *climb, a *schemas.Action, verb string) bool {
	return a.Kind == kindQuarantine && a.State == schemas.ActionDone || verb == verbEscalate && k.Cordoned
}

// keeps holds a server back with the step that takes it out for good, and lets it go with the one by which somebody
// gives it back: never with a step of our own.
func (s *store) keeps(ctx context.Context, tx *sql.Tx, k *climb, a *schemas.Action, verb string) error {
	switch {
	case holds(k, a, verb):
		why := k.Why
		if k.Request == nil {
			why = reasons.Text(reasons.Blamed, reasons.Args{"incident": k.Incident, "fault": k.Fault, "part": k.Target})
		}
		return estate.HoldBack(ctx, tx, s.now(), actor, k.Subject, reasons.Text(reasons.Quarantined, reasons.Args{"why": why}))
	case k.Request != nil && releases(a.Kind) && a.State == schemas.ActionDone && verb != "skip":
		return estate.LetGo(ctx, tx, s.now(), actor, cmp.Or(a.Actor, actor), k.Subject)
	}
	return nil
}

// idsOf makes ids of notices from what they tell.
var idsOf = uuid.MustParse("6f1c7f0e-55d0-5f44-9b0c-0d4f1ad9f4b7")

// ticketOf is what the receivers of notices are told with a change of an action that is a person's; nil where nobody is:
// observe and dry-run send nothing.
func (c *Controller) ticketOf(ctx context.Context, k *climb, a *schemas.Action, verb string) (func(*sql.Tx) error, error) {
	closed := a.State == schemas.ActionDone || a.State == schemas.ActionCancelled
	opened := a.State == schemas.ActionProposed && (verb == verbPropose || verb == verbEscalate)
	if !a.Person || !opened && !closed || k.Mode == schemas.ModeObserve || k.Mode == schemas.ModeDryRun {
		return nil, nil
	}
	t := schemas.Ticket{
		ID: a.ID, Kind: a.Kind, State: a.State, Opened: a.Created, Time: c.store.now().UTC(), Site: k.Site, Rack: k.Rack, Held: k.Cordoned || k.Quarantined,
		Tried: []schemas.Action{}, Links: c.links(k, a),
	}
	if closed {
		t.By = cmp.Or(a.Actor, actor)
	}
	for i, id := range []string{k.Subject, k.Target} {
		if i == 0 || id != k.Subject {
			t.Parts = append(t.Parts, c.part(id))
		}
	}
	if inc, found, err := c.d.Records.Incident(ctx, k.Incident); err != nil {
		return nil, err
	} else if found { // as people read it, without what the screens draw
		inc.Graph, inc.Lanes, inc.Sentences = nil, nil, nil
		t.Incident = &inc
	}
	tried, err := c.store.actionsOf(ctx, k.ID)
	if err != nil {
		return nil, err
	}
	for i := range tried {
		if tried[i].ID != a.ID && !tried[i].Person {
			t.Tried = append(t.Tried, tried[i])
		}
	}
	kind, said := schemas.NoticeTicketOpened, schemas.Sentence{}
	if closed {
		kind = schemas.NoticeTicketClosed
	} else if a.DetailSentence != nil {
		said = *a.DetailSentence
	}
	return func(tx *sql.Tx) error {
		t.What = cmp.Or(a.VerifiedBy, a.Detail)
		data, err := json.Marshal(t)
		if err != nil {
			return err
		}
		names, err := hooks.Once(ctx, tx, c.store.now(), &schemas.Notice{
			ID: uuid.NewSHA1(idsOf, []byte(a.ID+" "+kind)).String(), Type: kind, Subject: cmp.Or(a.Server, a.Target), Time: t.Time, Data: data,
		})
		if err == nil && opened && len(names) > 0 {
			become(a, a.State, toldTo(said, names))
		}
		return err
	}, nil
}

// toldTo says of what is a person's to which webhooks it was told.
func toldTo(s schemas.Sentence, names []string) schemas.Sentence {
	id, args := messages.ForPersonTold, messages.Args{"who": strings.Join(names, ", ")}
	if s.ID == messages.ForPersonAfter {
		id, args["kind"], args["server"] = messages.ForPersonAfterTold, s.Args["kind"], s.Args["server"]
	}
	return messages.New(id, args)
}

// links are the addresses of what a ticket is about, where people reach the user interface.
func (c *Controller) links(k *climb, a *schemas.Action) map[string]string {
	base := strings.TrimRight(c.d.Console, "/")
	if base == "" {
		return nil
	}
	out := map[string]string{"resolve": base + "/api/v1/actions/" + url.PathEscape(a.ID) + "/resolve"}
	if k.Incident != "" {
		out["incident"] = base + "/incidents/" + url.PathEscape(k.Incident)
	}
	if a.Server != "" {
		out["server"] = base + "/servers/" + url.PathEscape(a.Server)
	}
	return out
}

// part is a resource as whoever exchanges it knows it.
func (c *Controller) part(id string) schemas.TicketPart {
	p := schemas.TicketPart{ID: id}
	if c.d.Resource == nil {
		return p
	}
	if r, ok := c.d.Resource(id); ok {
		get := r.Attrs.Get
		p.Kind, p.Model, p.Serial, p.UUID, p.PCI, p.MAC = r.Kind, get(schemas.AttrModel), get(schemas.AttrSerial), get(schemas.AttrUUID), get(schemas.AttrPCI), get(schemas.AttrMAC)
	}
	return p
}

// actionsOf returns the actions of a case in the order in which they were made.
func (s *store) actionsOf(ctx context.Context, caseID string) ([]schemas.Action, error) {
	out, err := sqldb.Docs[schemas.Action](ctx, s.db, `SELECT doc FROM control_actions WHERE case_id=$1`, caseID)
	if err != nil {
		return nil, fmt.Errorf("list the actions of %s: %w", caseID, err)
	}
	slices.SortFunc(out, func(a, b schemas.Action) int {
		return cmp.Or(a.Created.Compare(b.Created), cmp.Compare(a.Rung, b.Rung), cmp.Compare(a.Attempt, b.Attempt))
	})
	return out, nil
}

// ladderOf finds the ladder of a case of an earlier version in what was made of it.
func (s *store) ladderOf(ctx context.Context, k *climb) error {
	if k.Request != nil || k.Ladder != nil {
		return nil
	}
	made, err := s.actionsOf(ctx, k.ID)
	if len(made) > 0 {
		k.Ladder = made[0].Ladder
	}
	return err
}

// resolvable reports whether an action is a person's and open to their word.
func resolvable(ctx context.Context, q sqldb.Queryer, id string) (bool, error) {
	found, err := sqldb.Docs[schemas.Action](ctx, q, `SELECT doc FROM control_actions WHERE id=$1`, id)
	return len(found) == 1 && found[0].Person && found[0].State == schemas.ActionProposed, err
}

// resolved says who has done what was a person's, and in which words.
func resolved(who, note string) schemas.Sentence {
	if note == "" {
		return messages.New(messages.ResolvedBy, messages.Args{"who": who})
	}
	return messages.New(messages.ResolvedSo, messages.Args{"who": who, "words": note})
}
