package api

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"regexp"
	"strconv"
	"time"

	"github.com/gofiber/fiber/v2"

	"auspex/api/access"
	"auspex/api/apigen"
	"auspex/internal/cmdb"
	"auspex/internal/fleet"
	"auspex/internal/reasons"
	"auspex/internal/store/entity"
	"auspex/internal/store/estate"
	"auspex/schemas"
)

type serverList struct{ paged[apigen.ServerRecord] }

// VisitListServersResponse implements apigen.ListServersResponseObject.
func (l serverList) VisitListServersResponse(c *fiber.Ctx) error { return l.visit(c) }

// ListServers implements the operation listServers.
func (s *Server) ListServers(ctx context.Context, r apigen.ListServersRequestObject) (apigen.ListServersResponseObject, error) {
	e, err := s.holdings()
	if err != nil {
		return nil, err
	}
	p := r.Params
	page := func(ctx context.Context, after string, limit int) ([]apigen.ServerRecord, string, error) {
		found, next, err := e.Servers(ctx, estate.Filter{
			Status: string(p.Status), Pool: p.Pool, Model: p.Model, Label: p.Label, Gone: p.Gone, Sort: string(p.Sort), After: after, Limit: limit,
		})
		if err != nil {
			return nil, "", err
		}
		items, err := s.records(ctx, e, found)
		return items, next, err
	}
	return serverList{paged[apigen.ServerRecord]{s, page, p.After, func() (any, error) {
		items, next, err := page(ctx, p.After, pageSize(p.Limit))
		return apigen.ServerRecordList{Items: orEmpty(items), Next: next}, err
	}}}, nil
}

var labelName = regexp.MustCompile(`^[A-Za-z0-9._/-]{1,64}$`)

func badLabels(labels map[string]string) error {
	for name := range labels {
		if !labelName.MatchString(name) {
			return wrong("body", apigen.FieldProblem{Field: "labels." + name, Detail: "a name of a label has 1 to 64 letters, digits and . _ / -"})
		}
	}
	return nil
}

// given are the attributes of a resource that are said.
func given(values map[string]string) schemas.Attrs {
	maps.DeleteFunc(values, func(_, v string) bool { return v == "" })
	return schemas.AttrsOf(values)
}

// part is a GPU that is registered, with its name within the server.
func part(g *apigen.NewGPU, server, field string) (r schemas.Resource, err error) {
	name := g.Name
	if name == "" && g.Index != nil {
		name = "gpu" + strconv.Itoa(*g.Index)
	}
	if name == "" {
		return r, wrong("body", apigen.FieldProblem{Field: field + "name", Detail: "it is missing, and so is index"})
	}
	r = schemas.Resource{ID: server + "/" + name, Kind: schemas.KindGPU, Parent: server}
	memory := ""
	if g.MemoryGb != nil {
		memory = strconv.FormatFloat(*g.MemoryGb, 'f', -1, 64)
	}
	r.Attrs = given(map[string]string{
		schemas.AttrModel: g.Model, schemas.AttrSerial: g.SerialNumber, schemas.AttrUUID: g.UUID, schemas.AttrPCI: g.Pci, schemas.AttrMemoryGB: memory,
		schemas.AttrDriverVersion: g.DriverVersion, schemas.AttrCUDAVersion: g.CudaVersion,
	})
	return r, nil
}

// newPart holds a GPU that is registered against the inventory, and against those beside it.
func newPart(ctx context.Context, e *holdings, old *cmdb.Snapshot, r *schemas.Resource, field string, seen map[string]bool) error {
	if err := untaken(ctx, e, old, field+"name", r.ID); err != nil {
		return err
	}
	for name, value := range map[string]string{
		"name": r.ID, "serial_number": r.Attrs.Get(schemas.AttrSerial), "uuid": r.Attrs.Get(schemas.AttrUUID), "pci": r.Attrs.Get(schemas.AttrPCI),
	} {
		if value != "" && seen[name+" "+value] {
			return &entity.FieldError{Field: field + name, Value: value, Reason: "is given twice"}
		}
		seen[name+" "+value] = true
		if name == "serial_number" || name == "uuid" {
			if err := nobodys(old, field+name, value, r.ID); err != nil {
				return err
			}
		}
	}
	return nil
}

// RegisterServer implements the operation registerServer.
func (s *Server) RegisterServer(ctx context.Context, r apigen.RegisterServerRequestObject) (apigen.RegisterServerResponseObject, error) {
	e, err := s.editor(ctx, access.Inventory)
	if err != nil {
		return nil, err
	}
	b := r.Body
	if err := badLabels(b.Labels); err != nil {
		return nil, err
	}
	more, nics, err := s.complete(ctx, b)
	if err != nil {
		return nil, err
	}
	server := schemas.Resource{ID: b.Name, Kind: schemas.KindServer, Parent: b.Parent, Attrs: given(map[string]string{
		schemas.AttrModel: b.Model, schemas.AttrSerial: b.SerialNumber, schemas.AttrIPMIIP: b.IpmiIP, schemas.AttrRedfishURL: b.RedfishURL,
		schemas.AttrManagementIP: b.ManagementIP, schemas.AttrCredential: b.Credential,
	}).Join(more)}
	t := schemas.Topology{Version: 1, Resources: []schemas.Resource{server}}
	for i := range b.Gpus {
		gpu, err := part(&b.Gpus[i], b.Name, fmt.Sprintf("gpus[%d].", i))
		if err != nil {
			return nil, err
		}
		t.Resources = append(t.Resources, gpu)
	}
	gpus := len(t.Resources)
	t.Resources = append(t.Resources, nics...)
	err = s.bring(ctx, e, t, cmdb.ImportOptions{
		Check: func(old *cmdb.Snapshot) error {
			if err := untaken(ctx, e, old, "name", b.Name); err != nil {
				return err
			}
			if v, err := e.Server(ctx, b.Name); err == nil && v.Status == schemas.ServerRetired {
				return &entity.FieldError{Field: "name", Value: b.Name, Taken: true} // by one that is retired
			} else if err != nil && !errors.Is(err, entity.ErrNone) {
				return err
			}
			if b.Pool != "" {
				if _, err := e.Pool(ctx, b.Pool); errors.Is(err, entity.ErrNone) {
					return &entity.FieldError{Field: "pool", Value: b.Pool, Reason: "is no pool"}
				} else if err != nil {
					return err
				}
			}
			if err := errors.Join(nobodys(old, "serial_number", b.SerialNumber, ""), stands(old, b.Parent)); err != nil {
				return err
			}
			seen := make(map[string]bool)
			if b.SerialNumber != "" {
				seen["serial_number "+b.SerialNumber] = true
			}
			for i := range t.Resources[1:gpus] {
				if err := newPart(ctx, e, old, &t.Resources[i+1], fmt.Sprintf("gpus[%d].", i), seen); err != nil {
					return err
				}
			}
			return nil
		},
		With: func(ctx context.Context, tx *sql.Tx) error {
			return e.Register(ctx, tx, Caller(ctx).Name, b.Name, b.Pool, b.Labels)
		},
	})
	if err != nil && !errors.Is(err, errMade) {
		return nil, refused(err, "server", b.Name)
	}
	out, tag, err := s.changed(ctx, e, b.Name)
	if err != nil {
		return nil, err
	}
	s.noted(ctx, "server registered", b.Name)
	return apigen.RegisterServer201JSONResponse{Body: out, Headers: apigen.RegisterServer201ResponseHeaders{
		ETag: tag, Location: s.cfg.BasePath + "/api/v1/servers/" + out.ID,
	}}, nil
}

// UpdateServer implements the operation updateServer.
func (s *Server) UpdateServer(ctx context.Context, r apigen.UpdateServerRequestObject) (apigen.UpdateServerResponseObject, error) {
	e, err := s.keeper(ctx)
	if err != nil {
		return nil, err
	}
	of, err := revision(r.Params.IfMatch)
	if err != nil {
		return nil, err
	}
	v, err := s.itself(ctx, r.ID)
	if err == nil {
		err = s.mayOn(ctx, access.Inventory, v.ID)
	}
	if err != nil {
		return nil, err
	}
	b, by := r.Body, Caller(ctx).Name
	if b.Labels != nil {
		if err := badLabels(*b.Labels); err != nil {
			return nil, err
		}
	}
	if b.Pool != nil && *b.Pool != v.Pool { // and what is moved is moved by whoever may in both
		to, err := s.deps.Estate.Pool(ctx, *b.Pool)
		if err == nil {
			err = s.mayIn(ctx, access.Inventory, to.Name)
		} else if errors.Is(err, entity.ErrNone) {
			err = nil // the change says so
		}
		if err != nil {
			return nil, err
		}
	}
	change := func(v *schemas.Server) {
		if b.Pool != nil {
			v.Pool = *b.Pool
		}
		if b.Labels != nil {
			v.Labels = *b.Labels
		}
		if b.Hold != nil {
			v.Hold = *b.Hold
		}
		if b.Status != "" && b.Status != v.Status {
			v.Status, v.Reason = b.Status, b.StatusReason
		}
	}
	is := schemas.Resource{ID: v.Name, Kind: schemas.KindServer}
	for k, p := range map[string]*string{
		schemas.AttrModel: b.Model, schemas.AttrSerial: b.SerialNumber, schemas.AttrIPMIIP: b.IpmiIP, schemas.AttrRedfishURL: b.RedfishURL,
		schemas.AttrManagementIP: b.ManagementIP, schemas.AttrCredential: b.Credential,
	} {
		if p != nil {
			is.Attrs = is.Attrs.With(k, *p)
		}
	}
	if b.Parent != nil {
		is.Parent = *b.Parent
	}
	if is.Attrs.Len() == 0 && is.Parent == "" {
		if _, err := e.UpdateServer(ctx, by, v.ID, of, change); err != nil {
			return nil, refused(err, "server", r.ID)
		}
	} else if err := s.bring(ctx, e, schemas.Topology{Version: 1, Resources: []schemas.Resource{is}}, s.edit(e, &v, of, &is, change)); err != nil {
		return nil, refused(err, "server", r.ID)
	}
	out, tag, err := s.changed(ctx, e, v.ID)
	if err != nil {
		return nil, err
	}
	s.noted(ctx, "server changed", v.Name)
	return apigen.UpdateServer200JSONResponse{Body: out, Headers: apigen.UpdateServer200ResponseHeaders{ETag: tag}}, nil
}

// errLeft is of what the inventory does not have any more.
func errLeft(name string) error {
	return problem{http.StatusConflict, "not_in_inventory", name + " has left the inventory.", "Register it again."}
}

// edit is how the inventory is changed of a server, and with it what people are given it by. What
// the change was made of is looked at before the inventory makes another revision of it.
func (s *Server) edit(e *holdings, v *schemas.Server, of int64, is *schemas.Resource, change func(*schemas.Server)) cmdb.ImportOptions {
	var before schemas.Server
	return cmdb.ImportOptions{
		Check: func(old *cmdb.Snapshot) error {
			if _, there := old.Resource(v.Name); !there {
				return errLeft(v.Name)
			}
			return errors.Join(nobodys(old, "serial_number", is.Attrs.Get(schemas.AttrSerial), v.Name), stands(old, is.Parent))
		},
		First: func(ctx context.Context, tx *sql.Tx) (err error) {
			if before, err = estate.LockServer(ctx, tx, v.ID); err != nil {
				return err
			}
			return entity.Check(of, before.Revision)
		},
		With: func(ctx context.Context, tx *sql.Tx) error {
			by := Caller(ctx).Name
			after, err := e.ChangeServer(ctx, tx, by, v.ID, 0, change)
			if err != nil {
				return err
			}
			return entity.Audit(ctx, tx, time.Now(), by, entity.Update, estate.KindServer, v.Name, before, after)
		},
	}
}

// RetireServer implements the operation retireServer.
func (s *Server) RetireServer(ctx context.Context, r apigen.RetireServerRequestObject) (apigen.RetireServerResponseObject, error) {
	e, err := s.editor(ctx, access.Inventory)
	if err != nil {
		return nil, err
	}
	of, err := revision(r.Params.IfMatch)
	if err != nil {
		return nil, err
	}
	v, err := s.itself(ctx, r.ID)
	if err != nil {
		return nil, err
	}
	err = s.bring(ctx, e, schemas.Topology{Version: 1}, cmdb.ImportOptions{
		Drop: []string{v.Name},
		First: func(ctx context.Context, tx *sql.Tx) error {
			_, err := e.ChangeServer(ctx, tx, Caller(ctx).Name, v.ID, of, func(v *schemas.Server) {
				v.Status, v.Reason = schemas.ServerRetired, reasons.Text(reasons.RetiredBy, reasons.Args{"who": Caller(ctx).Name})
			})
			return err
		},
	})
	if err != nil {
		return nil, refused(err, "server", r.ID)
	}
	s.noted(ctx, "server retired", v.Name)
	return apigen.RetireServer204Response{}, nil
}

// beside puts what a server is given by onto its page.
func beside(out *apigen.Server, v *apigen.ServerRecord) {
	out.Status, out.StatusReason, out.StatusSentence, out.StatusSince = v.Status, v.StatusReason, v.StatusSentence, v.StatusSince
	out.IpmiIP, out.RedfishURL, out.ManagementIP, out.SerialNumber = v.IpmiIP, v.RedfishURL, v.ManagementIP, v.SerialNumber
	out.Pool, out.Labels, out.Hold, out.HoldBy = v.Pool, v.Labels, v.Hold, v.HoldBy
	out.InInventory, out.CreatedAt, out.UpdatedAt = &v.InInventory, v.CreatedAt, v.UpdatedAt
	out.Allocation, out.Allocatable, out.WhyNot, out.Place = v.Allocation, &v.Allocatable, v.WhyNot, v.Place
}

// left is the page of a server that has left the inventory.
func (s *Server) left(ctx context.Context, text string) (apigen.GetServerResponseObject, error) {
	e, err := s.holdings()
	if err != nil {
		return nil, err
	}
	out, tag, err := s.changed(ctx, e, text)
	if err != nil {
		return nil, err
	}
	page := apigen.Server{
		ID: out.ID, Name: out.Name, Kind: schemas.KindServer, Model: out.Model, Serial: out.SerialNumber, State: int(fleet.Unknown), Health: stateWords[fleet.Unknown],
		Parts: []apigen.ServerParts{}, Inventory: []apigen.Fact{}, Links: []apigen.PartLink{}, Contact: []apigen.Contact{}, Events: []apigen.Alert{},
		Incidents: []apigen.Incident{}, Predictions: []apigen.Prediction{}, Actions: []apigen.Action{},
	}
	beside(&page, &out)
	return apigen.GetServer200JSONResponse{Body: page, Headers: apigen.GetServer200ResponseHeaders{ETag: tag}}, nil
}
