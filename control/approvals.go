package control

import (
	"cmp"
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	"auspex/control/messages"
	"auspex/control/policy"
	"auspex/schemas"
)

// errPools: rules for pools cannot be held where nothing tells in which pool a server is.
var errPools = errors.New("control: nothing tells in which pool a server is, and the policies have rules for pools")

// scene is what the rules of the policies are held against. What somebody asks for has neither policy nor fault.
func (c *Controller) scene(ctx context.Context, k *climb, rung string) (policy.Scene, error) {
	at := policy.Scene{Rung: rung}
	if k.Request == nil {
		at.Policy, at.Fault = k.Policy, k.Fault
	}
	if !c.policies.NamesPools() {
		return at, nil
	}
	if c.d.Groups == nil {
		return at, errPools
	}
	groups, err := c.d.Groups.Of(ctx, k.Subject)
	if err != nil {
		return at, fmt.Errorf("read in which pool %s is: %w", k.Subject, err)
	}
	for _, g := range groups {
		if g.Scope == schemas.ScopePool {
			at.Pools = append(at.Pools, g.Name)
		}
	}
	return at, nil
}

// ask is what a step needs of people.
type ask struct {
	mode           string // what may be done of it now
	always, asked  int    // persons who must approve it: in whichever mode, and where anybody must
	votes          []schemas.Approval
	vouched        bool // as many approved as are asked where anybody must
	fresh          []schemas.Approval
	overrideIsNew  bool
	approvedBefore bool // by an earlier version, which kept one name
}

// asking reads what a step needs of people now, and what they said. A rule may have become stricter since the case
// was opened; the case is never more than it was then.
func (c *Controller) asking(ctx context.Context, k *climb, p *policy.Policy, a *schemas.Action, r *policy.Rung) (q ask, err error) {
	at, err := c.scene(ctx, k, r.Kind)
	if err != nil {
		return q, err
	}
	q.mode = policy.Stricter(k.Mode, c.policies.Mode(c.cfg.Mode, p, at))
	q.always, q.asked = c.policies.Approvals(p, r, at)
	if k.Request != nil && k.Request.Reason != verbRequest { // of an allocation or a workflow, which were granted as a whole
		q.always = 0
	}
	said, override, err := c.store.votes(ctx, a.ID)
	if err != nil {
		return q, err
	}
	for _, v := range said {
		if approves(k, v, max(q.always, q.asked)) {
			q.votes = append(q.votes, v)
		}
	}
	for _, v := range q.votes {
		if !slices.ContainsFunc(a.Approvals, func(known schemas.Approval) bool { return voter(known) == voter(v) }) {
			q.fresh = append(q.fresh, v)
		}
	}
	q.vouched = len(q.votes) >= q.asked
	q.overrideIsNew = override != nil && a.Override == nil
	a.Mode, a.Approvals, a.Override, k.override = q.mode, q.votes, override, override
	switch {
	case k.Request != nil:
		a.ApprovalsNeeded = q.always
	case q.mode == schemas.ModeEnforce && len(q.votes) == 0 && q.always == 0:
		a.ApprovalsNeeded = 0 // until a check asks for somebody
	default:
		a.ApprovalsNeeded = q.asked
	}
	return q, nil
}

// approved reports whether a step may go, as far as people are asked.
func (q *ask) approved(k *climb) bool {
	switch {
	case k.Request != nil, q.mode == schemas.ModeEnforce:
		return len(q.votes) >= q.always || q.approvedBefore
	}
	return q.vouched || q.approvedBefore
}

// left is how many persons must still approve.
func (q *ask) left(k *climb) int {
	need := q.asked
	if k.Request != nil {
		need = q.always
	}
	return max(0, need-len(q.votes))
}

// voter tells persons apart, whatever tokens they use.
func voter(v schemas.Approval) string { return cmp.Or(v.User, "token "+v.By) }

// approves reports whether what somebody said counts as an approval: nobody approves what they asked for, and where
// two must, a token that is nobody's is no person.
func approves(k *climb, v schemas.Approval, needed int) bool {
	if needed > 1 && v.User == "" {
		return false
	}
	if k.Request == nil {
		return true
	}
	return v.User != k.Request.User || v.User == "" && v.By != k.Request.Actor
}

// vote keeps what a person said, once.
func vote(ctx context.Context, tx *sql.Tx, in schemas.Intent, now time.Time) error {
	v := schemas.Approval{By: in.Actor, User: in.User, Time: now.UTC()}
	if in.Verb == verbOverride {
		v.Reason = in.Reason
	}
	doc, err := json.Marshal(v)
	if err != nil {
		return err
	}
	_, err = tx.ExecContext(
		ctx, `INSERT INTO control_votes (action, verb, voter, time_ns, doc) VALUES ($1,$2,$3,$4,$5) ON CONFLICT (action, verb, voter) DO NOTHING`,
		in.Action, in.Verb, voter(v), now.UnixNano(), string(doc),
	)
	return err
}

// votes returns who approved an action, the first first, and who let it through a freeze first.
func (s *store) votes(ctx context.Context, action string) (approvals []schemas.Approval, override *schemas.Approval, err error) {
	rows, err := s.db.QueryContext(ctx, `SELECT verb, doc FROM control_votes WHERE action=$1 ORDER BY time_ns, voter`, action)
	if err != nil {
		return nil, nil, fmt.Errorf("read who approved %s: %w", action, err)
	}
	defer func() { _ = rows.Close() }()
	for rows.Next() {
		var verb, doc string
		var v schemas.Approval
		if err := rows.Scan(&verb, &doc); err != nil {
			return nil, nil, err
		}
		if err := json.Unmarshal([]byte(doc), &v); err != nil {
			return nil, nil, err
		}
		switch {
		case verb == verbApprove:
			approvals = append(approvals, v)
		case verb == verbOverride && override == nil:
			override = &v
		}
	}
	return approvals, override, rows.Err()
}

// heed writes down what people said of a step that waits, in the audit with the name of each, where that alone does not
// decide it.
func (c *Controller) heed(ctx context.Context, k *climb, a *schemas.Action, r policy.Rung, q *ask) (told bool, err error) {
	said := q.fresh
	if q.asked < 2 && q.always < 2 {
		said = nil // the decision itself carries the name
	}
	for i, v := range said {
		a.Actor = v.By
		become(a, schemas.ActionWaiting, messages.New(messages.ApprovedBy, messages.Args{"who": v.By, "n": len(q.votes) - len(said) + i + 1, "of": len(q.votes) + q.left(k)}))
		if err := c.save(ctx, k, a, r, time.Time{}, verbApprove); err != nil {
			return false, err
		}
	}
	if q.overrideIsNew {
		a.Actor = a.Override.By
		become(a, schemas.ActionWaiting, messages.New(messages.Overridden, messages.Args{"who": a.Override.By, "why": a.Override.Reason}))
		return true, c.save(ctx, k, a, r, time.Time{}, verbOverride)
	}
	return len(said) > 0, nil
}

// modeFor is what control may do of a case as a whole.
func (c *Controller) modeFor(ctx context.Context, k *climb, p *policy.Policy) (string, error) {
	at, err := c.scene(ctx, k, "")
	if err != nil {
		return "", err
	}
	return c.policies.Mode(c.cfg.Mode, p, at), nil
}

// Modes tells the most that may be done now of a step that somebody asks for on a server: the strictest of the mode as a
// whole and of the rules of the policies, by what groups say of the server.
func Modes(cfg Config, groups Groups) (func(ctx context.Context, server, kind string) (string, error), error) {
	set, err := policy.Read(cfg.Policies)
	if err != nil {
		return nil, err
	}
	if set.NamesPools() && groups == nil {
		return nil, errPools
	}
	c := &Controller{cfg: cfg, d: Deps{Groups: groups}, policies: set}
	return func(ctx context.Context, server, kind string) (string, error) {
		p := policy.Asked(kind, nil)
		at, err := c.scene(ctx, &climb{Subject: server, Request: &schemas.Intent{}}, kind)
		if err != nil {
			return "", err
		}
		return set.Mode(cfg.Mode, &p, at), nil
	}, nil
}

// moded is the check of a mode that lets nothing be sent any more, since the case was opened.
func (c *Controller) moded(ctx context.Context, k *climb, p *policy.Policy, r *policy.Rung) ([]schemas.Rail, error) {
	at, err := c.scene(ctx, k, r.Kind)
	if err != nil {
		return nil, err
	}
	mode := c.policies.Mode(c.cfg.Mode, p, at)
	rank, least := slices.Index(modes, mode), slices.Index(modes, schemas.ModeApprove)
	if rank >= least {
		return nil, nil
	}
	sentence := messages.New(messages.ModeHolds, messages.Args{"mode": mode, "server": k.Subject})
	return []schemas.Rail{{Name: railMode, Value: float64(rank), Limit: float64(least), Detail: messages.Text(sentence), Sentence: &sentence}}, nil
}

// requester is the person who asked for an action; empty where nobody did.
func requester(k *climb) string {
	if k.Request == nil || k.Request.Reason != verbRequest {
		return ""
	}
	return k.Request.User
}
