package api

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"slices"
	"time"

	"github.com/gofiber/fiber/v2"

	"auspex/api/access"
	"auspex/api/apigen"
	"auspex/internal/cmdb"
	"auspex/internal/fleet"
	"auspex/internal/store/allocations"
	"auspex/internal/store/configs"
	"auspex/internal/store/entity"
	"auspex/internal/store/estate"
	"auspex/internal/store/provisioning"
	"auspex/internal/store/sqldb"
	"auspex/internal/store/validations"
	"auspex/internal/store/wipes"
	"auspex/schemas"
)

// holdings are what people are given, and the inventory behind it, which callers add to.
type holdings struct {
	*estate.Store
	allocations *allocations.Store
	configs     *configs.Store
	inventory   *cmdb.Inventory

	provisioning *provisioning.Store
	validations  *validations.Store
	wipes        *wipes.Store
}

// holdings are there where this process keeps the inventory.
func (s *Server) holdings() (*holdings, error) {
	d := &s.deps
	if d.Configs == nil || d.Registry == nil || d.Provisioning == nil || d.Validations == nil || d.Wipes == nil {
		return nil, problem{http.StatusServiceUnavailable, "no_estate", "This console keeps no servers to give.", "Run a role that has the inventory."}
	}
	return &holdings{d.Estate, d.Allocations, d.Configs, d.Registry, d.Provisioning, d.Validations, d.Wipes}, nil
}

// editor is the estate for a caller who may change it.
func (s *Server) editor(ctx context.Context, permission string) (*holdings, error) {
	if err := may(ctx, permission); err != nil {
		return nil, err
	}
	return s.holdings()
}

// keeper is the estate for a caller who may change servers of some pools; where mayOn says whether of this one.
func (s *Server) keeper(ctx context.Context) (*holdings, error) {
	if err := s.somewhere(ctx, access.Inventory); err != nil {
		return nil, err
	}
	return s.holdings()
}

// viewer is who asks, as to quotas and reservations.
func viewer(ctx context.Context) allocations.Viewer {
	who := Caller(ctx)
	return allocations.Viewer{User: who.User, All: who.May(access.Inventory) && seen(ctx) == nil}
}

// standing tells what stands against a change of what people are given; ok is false where it is
// something else.
func standing(err error) (out error, ok bool) {
	var move *schemas.MoveError
	var refusal *cmdb.RefusedError
	conflict := func(code, detail, hint string) error { return problem{http.StatusConflict, code, detail, hint} }
	switch {
	case errors.As(err, &move):
		return legal(err), true
	case errors.Is(err, estate.ErrAllocated):
		return conflict("allocated", "Somebody has it, or has been promised it.", "End that allocation first."), true
	case errors.Is(err, estate.ErrLeased):
		return conflict("leased", "A repair or a workflow works on it now.", "Wait until that has ended, or cancel the workflow."), true
	case errors.Is(err, estate.ErrCase):
		return conflict("under_repair", "Control has an open case of it.", "Wait until that has closed, or cancel its actions."), true
	case errors.Is(err, estate.ErrDefault):
		return conflict("default_pool", "The pool default has to be there: what is in no other is in it.", "Choose another pool."), true
	case errors.As(err, &refusal), errors.Is(err, cmdb.ErrProblems):
		return conflict("refused", sentence(err.Error()), "auspex cmdb versions shows what the sources of the inventory brought."), true
	}
	return nil, false
}

// itself finds a server by any of its own names, and not by those of its parts, for what is to
// be changed.
func (s *Server) itself(ctx context.Context, text string) (schemas.Server, error) {
	v, err := s.server(ctx, text)
	if err != nil {
		return v, err
	}
	if names := s.live.directory(); v.Present && !slices.Contains(names.Find(text), v.Name) {
		_, err = one(names, text, "server", nil)
	}
	return v, err
}

func placeOf(names *cmdb.Snapshot, name string) apigen.Place {
	r, _ := names.Resource(name)
	p := apigen.Place{Site: names.Site(name), Rack: names.Rack(name), Parent: r.Parent}
	for up, steps := r.Parent, 0; up != "" && steps < 16; steps++ {
		whole, _ := names.Resource(up)
		if whole.Kind == schemas.KindRow {
			p.Row = up
			break
		}
		up = whole.Parent
	}
	return p
}

// records are servers as the API has them.
func (s *Server) records(ctx context.Context, e *holdings, found []schemas.Server) ([]apigen.ServerRecord, error) {
	near := around(ctx)
	standings, err := e.allocations.Standings(ctx, allocations.Viewer{User: near, All: near == ""}, found)
	if err != nil {
		return nil, err
	}
	names, sees := s.deps.Inventory.Snapshot(), seen(ctx)
	index, states, _ := s.live.current()
	out := make([]apigen.ServerRecord, len(found))
	for i := range found {
		v, st := &found[i], standings[found[i].ID]
		out[i] = apigen.ServerRecord{
			ID: v.ID, Name: v.Name, Model: v.Model, Status: v.Status, StatusReason: v.Reason, StatusSentence: s.said(v.Reason), StatusSince: v.Since, IpmiIP: v.IPMIIP,
			RedfishURL: v.RedfishURL, ManagementIP: v.ManagementIP, SerialNumber: v.SerialNumber, Pool: v.Pool, Labels: v.Labels, Hold: v.Hold,
			HoldBy: v.HoldBy, InInventory: v.Present, CreatedAt: v.CreatedAt, UpdatedAt: v.UpdatedAt, Allocation: st.Allocation,
			Allocatable: st.Why == "", WhyNot: st.Why, Place: placeOf(names, v.Name),
			Health: stateWords[fleet.Unknown],
		}
		if v.Present && sees.has(v.Name) {
			out[i].Health, out[i].Risk = stateWords[states.Device(index, v.Name)], states.Risk(v.Name)/100
		}
	}
	return out, nil
}

// changed answers with a server as it is now.
func (s *Server) changed(ctx context.Context, e *holdings, name string) (apigen.ServerRecord, string, error) {
	v, err := e.Server(ctx, name)
	if err != nil {
		return apigen.ServerRecord{}, "", refused(err, "server", name)
	}
	out, err := s.records(ctx, e, []schemas.Server{v})
	if err != nil {
		return apigen.ServerRecord{}, "", err
	}
	return out[0], etag(v.Revision), nil
}

// bring adds to what callers have registered, or takes from it, and shows it at once.
func (s *Server) bring(ctx context.Context, e *holdings, t schemas.Topology, o cmdb.ImportOptions) error {
	o.Source, o.Origin, o.Actor, o.Add, o.Told, o.Bounds = cmdb.SourceAPI, requestOf(ctx), Caller(ctx).Name, true, true, cmdb.NoBounds()
	if _, err := e.inventory.Import(ctx, cmdb.Draft{Topology: t}, o); err != nil {
		return err
	}
	s.live.renew()
	return nil
}

// requestOf is what the inventory says that a change came from. The same again, where its
// answer was lost, is known by it.
func requestOf(ctx context.Context) string { return "request " + sqldb.NewID(ctx) }

// errMade is of what the same request has made before.
var errMade = errors.New("the same request made it")

// untaken holds a new resource against the inventory: its name is nobody's.
func untaken(ctx context.Context, e *holdings, old *cmdb.Snapshot, field, name string) error {
	if _, there := old.Resource(name); !there {
		return nil
	}
	if latest, err := e.inventory.Latest(ctx, []string{name}); err != nil {
		return err
	} else if s := latest[name]; s.Version == 1 && s.Origin == requestOf(ctx) {
		return errMade
	}
	return &entity.FieldError{Field: field, Value: name, Taken: true}
}

// nobodys is nil where a serial number or UUID is that of no resource but one.
func nobodys(old *cmdb.Snapshot, field, value, but string) error {
	if value != "" && slices.ContainsFunc(old.Find(value), func(name string) bool { return name != but }) {
		return &entity.FieldError{Field: field, Value: value, Taken: true}
	}
	return nil
}

// stands is nil for what a server may stand in.
func stands(old *cmdb.Snapshot, parent string) error {
	r, _ := old.Resource(parent)
	if parent == "" || r.Kind == schemas.KindRack || r.Kind == schemas.KindRow || r.Kind == schemas.KindSite {
		return nil
	}
	return &entity.FieldError{Field: "parent", Value: parent, Reason: "is no rack, row or site of the inventory"}
}

// paged is a list that is answered as a page of JSON, or, where the caller accepts
// application/x-ndjson, as all of it, a record a line, page by page as the caller reads.
type paged[T any] struct {
	s    *Server
	page func(ctx context.Context, after string, limit int) (items []T, next string, err error)
	from string
	json func() (any, error) // the answer as a page
}

// linePage is how many records a list of lines reads at a time.
const linePage = 1000

func (p paged[T]) visit(c *fiber.Ctx) error {
	if !wantsLines(c) {
		answer, err := p.json()
		if err != nil {
			return err
		}
		return c.JSON(answer)
	}
	ctx, cancel := context.WithCancel(context.WithValue(p.s.stopping, identityKey{}, c.UserContext().Value(identityKey{})))
	l := &lines[T]{paged: p, ctx: ctx, cancel: cancel, after: p.from}
	l.fields, _ = c.Locals(fieldsKey{}).([]string)
	if err := l.fill(); err != nil { // what is wrong from the beginning is a problem document
		cancel()
		return err
	}
	c.Set("Content-Type", ndjson)
	c.Context().SetBodyStream(l, -1)
	return nil
}

// lines is the body. An error of a later page is its last line.
type lines[T any] struct {
	paged[T]
	ctx    context.Context //nolint:containedctx // of the answer, which outlives its handler
	cancel context.CancelFunc
	fields []string // of each record; none is all
	after  string
	last   bool
	buf    bytes.Buffer
}

func (l *lines[T]) fill() error {
	ctx, cancel := context.WithTimeout(l.ctx, answerWithin)
	defer cancel()
	items, next, err := l.page(ctx, l.after, linePage)
	if err != nil {
		return err
	}
	l.after, l.last = next, next == ""
	for i := range items {
		record, err := json.Marshal(&items[i])
		if err != nil {
			return err
		}
		if len(l.fields) == 0 {
			l.buf.Write(record)
		} else if err := projectItem(&l.buf, record, l.fields); err != nil {
			return err
		}
		l.buf.WriteByte('\n')
	}
	return nil
}

// Read implements io.Reader.
func (l *lines[T]) Read(b []byte) (int, error) {
	for l.buf.Len() == 0 {
		if l.last {
			return 0, io.EOF
		}
		if err := l.fill(); err != nil {
			l.last = true
			l.buf.Write(l.s.breakOff(err))
		}
	}
	return l.buf.Read(b)
}

// Close implements io.Closer.
func (l *lines[T]) Close() error {
	l.cancel()
	return nil
}

// noted says in the log what was changed.
func (s *Server) noted(ctx context.Context, what, name string) {
	s.log.Info("changed by a caller", "change", what, "name", name, "actor", Caller(ctx).Name)
}

// zeroOr is a time, or another where it is zero.
func zeroOr(t, other time.Time) time.Time {
	if t.IsZero() {
		return other
	}
	return t
}
