package api

import (
	"cmp"
	"context"
	"encoding/json"
	"maps"
	"time"

	"auspex/api/apigen"
	"auspex/internal/reasons"
	"auspex/internal/store/hooks"
	"auspex/schemas"
)

// saidOfNotice adds in pieces what a notice says in English.
func saidOfNotice(said *reasons.Reader, n schemas.Notice) schemas.Notice {
	var data struct {
		Detail string            `json:"detail"`
		What   string            `json:"what"` // of a ticket
		Cause  *schemas.Sentence `json:"cause"`
	}
	if json.Unmarshal(n.Data, &data) == nil {
		n.Sentence = said.Of(cmp.Or(data.Detail, data.What))
	}
	if n.Sentence != nil && data.Cause != nil && n.Sentence.Args["why"] != nil {
		n.Sentence.Args["why"] = *data.Cause
	}
	return n
}

// ListNotices implements the operation listNotices.
func (s *Server) ListNotices(ctx context.Context, r apigen.ListNoticesRequestObject) (apigen.ListNoticesResponseObject, error) {
	out := apigen.ListNotices200JSONResponse{Items: []schemas.Notice{}}
	if s.deps.Webhooks == nil {
		return out, nil
	}
	items, next, err := s.deps.Webhooks.Notices(ctx, hooks.NoticeFilter{
		Type: r.Params.Type, Subject: r.Params.Subject, Since: r.Params.Since, Near: around(ctx), Sort: string(r.Params.Sort), After: r.Params.After,
		Limit: pageSize(r.Params.Limit),
	})
	if err != nil {
		return nil, listed(err)
	}
	for k := range items {
		out.Items = append(out.Items, saidOfNotice(s.deps.Said, items[k]))
	}
	out.Next = next
	return out, nil
}

// lag is how long a notice may be written before its transaction is committed, and how far the clock of
// another process that writes some may be behind.
const lag = 10 * time.Second

// tell puts on the stream what people were told since it looked last, by whatever process.
func (l *live) tell(ctx context.Context) error {
	if l.deps.Webhooks == nil {
		return nil
	}
	now := time.Now()
	ids, err := l.deps.Webhooks.Written(ctx, l.lookedAt.Add(-lag))
	if err != nil {
		return err
	}
	first, known := l.told == nil, l.told
	l.told = make(map[string]bool, len(ids))
	for _, id := range ids {
		if first || known[id] {
			l.told[id] = true
			continue
		}
		n, found, err := l.deps.Webhooks.Notice(ctx, id)
		if err != nil {
			maps.Copy(l.told, known)
			return err
		}
		if l.told[id] = true; !found || n.Type == hooks.TypeTest {
			continue
		}
		l.mark("notices")
		_ = l.hub.Send("notice", saidOfNotice(l.deps.Said, n), true)
	}
	l.lookedAt = now
	return nil
}
