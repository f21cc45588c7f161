package api

import (
	"cmp"
	"context"
	"errors"
	"net/http"
	"strconv"
	"strings"

	"github.com/google/uuid"

	"auspex/api/access"
	"auspex/api/apigen"
	"auspex/internal/provision"
	"auspex/internal/store/entity"
	"auspex/internal/store/provisioning"
	"auspex/schemas"
)

// refusedTemplate tells what stands against a template, and what is wrong with one.
func refusedTemplate(err error, ref string) error {
	var faults provision.Faults
	switch {
	case errors.As(err, &faults):
		return fielded{
			problem{http.StatusBadRequest, "bad_template", sentence(faults.Error()), "docs/how-to/provisioning-records.md says what a template holds."}, faultsIn("body", faults),
		}
	case errors.Is(err, provisioning.ErrRetired):
		return problem{http.StatusConflict, "retired", "The template is retired, and takes no further version.", "Make its status active, or create another one."}
	case errors.Is(err, entity.ErrInUse):
		return problem{http.StatusConflict, "in_use", "Something refers to this template.", "Retire it: with the status retired nothing new is installed with it."}
	}
	return refused(err, "template", ref)
}

// faultsIn are faults as a problem document has them.
func faultsIn(in string, faults provision.Faults) []apigen.FieldProblem {
	out := make([]apigen.FieldProblem, len(faults))
	for i, f := range faults {
		out[i] = apigen.FieldProblem{In: in, Field: f.Field, Line: f.Line, Detail: f.Detail}
	}
	return out
}

// ListTemplates implements the operation listTemplates.
func (s *Server) ListTemplates(ctx context.Context, r apigen.ListTemplatesRequestObject) (apigen.ListTemplatesResponseObject, error) {
	e, err := s.holdings()
	if err != nil {
		return nil, err
	}
	p := r.Params
	items, next, err := e.provisioning.Templates(ctx, string(p.Status), string(p.OsFamily), string(p.Sort), p.After, pageSize(p.Limit))
	if err != nil {
		return nil, err
	}
	return apigen.ListTemplates200JSONResponse{Items: orEmpty(items), Next: next}, nil
}

// template is a template as one of its versions has it; 0 is the latest.
func (e *holdings) template(ctx context.Context, ref string, version int64) (t schemas.Template, err error) {
	if t, err = e.provisioning.Template(ctx, ref); err != nil {
		return t, refused(err, "template", ref)
	}
	if version != 0 && version != t.Version {
		if t.TemplateVersion, err = e.provisioning.Version(ctx, t.ID, version); err != nil {
			return t, refused(err, "version of the template "+t.Name+",", strconv.FormatInt(version, 10))
		}
	}
	return t, nil
}

// GetTemplate implements the operation getTemplate.
func (s *Server) GetTemplate(ctx context.Context, r apigen.GetTemplateRequestObject) (apigen.GetTemplateResponseObject, error) {
	e, err := s.holdings()
	if err != nil {
		return nil, err
	}
	t, err := e.template(ctx, r.ID, r.Params.Version)
	if err != nil {
		return nil, err
	}
	return apigen.GetTemplate200JSONResponse{Body: t, Headers: apigen.GetTemplate200ResponseHeaders{ETag: etag(t.Revision)}}, nil
}

// CreateTemplate implements the operation createTemplate.
func (s *Server) CreateTemplate(ctx context.Context, r apigen.CreateTemplateRequestObject) (apigen.CreateTemplateResponseObject, error) {
	e, err := s.editor(ctx, access.Inventory)
	if err != nil {
		return nil, err
	}
	b, by := r.Body, Caller(ctx).Name
	made := schemas.TemplateBody{Description: b.Description, OSFamily: b.OsFamily, Architectures: b.Architectures, Text: b.Text, Parameters: b.Parameters}
	if err := provision.Check(ctx, &made); err != nil {
		return nil, refusedTemplate(err, b.Name)
	}
	if r.Params.DryRun {
		return apigen.CreateTemplate200JSONResponse(schemas.Template{
			ID: uuid.Nil.String(), Name: b.Name, Status: schemas.TemplateActive,
			TemplateVersion: schemas.TemplateVersion{Version: 1, TemplateBody: made, VersionBy: by},
		}), nil
	}
	t, err := e.provisioning.Create(ctx, by, b.Name, made)
	if err != nil {
		return nil, refusedTemplate(err, b.Name)
	}
	s.noted(ctx, "template created", t.Name)
	return apigen.CreateTemplate201JSONResponse{Body: t, Headers: apigen.CreateTemplate201ResponseHeaders{ETag: etag(t.Revision), Location: s.at("templates", t.ID)}}, nil
}

// UpdateTemplate implements the operation updateTemplate.
func (s *Server) UpdateTemplate(ctx context.Context, r apigen.UpdateTemplateRequestObject) (apigen.UpdateTemplateResponseObject, error) {
	e, err := s.editor(ctx, access.Inventory)
	if err != nil {
		return nil, err
	}
	of, err := revision(r.Params.IfMatch)
	if err != nil {
		return nil, err
	}
	b := r.Body
	change := func(t *schemas.Template) {
		t.Status, t.OSFamily, t.Text = cmp.Or(b.Status, t.Status), cmp.Or(b.OsFamily, t.OSFamily), cmp.Or(b.Text, t.Text)
		if b.Description != nil {
			t.Description = *b.Description
		}
		if b.Architectures != nil {
			t.Architectures = b.Architectures
		}
		if b.Parameters != nil {
			t.Parameters = b.Parameters
		}
	}
	var t schemas.Template
	for range 3 { // what was checked is what is stored, also where somebody else changes the rest of it
		if t, err = e.provisioning.Template(ctx, r.ID); err != nil {
			break
		}
		seen := t.Revision
		if err = entity.Check(of, seen); err != nil {
			break
		}
		change(&t)
		if err = provision.Check(ctx, &t.TemplateBody); err != nil || r.Params.DryRun {
			break
		}
		if t, err = e.provisioning.Update(ctx, Caller(ctx).Name, r.ID, seen, change); !errors.Is(err, entity.ErrChanged) || of != 0 {
			break
		}
	}
	if err != nil {
		return nil, refusedTemplate(err, r.ID)
	}
	if !r.Params.DryRun {
		s.noted(ctx, "template changed", t.Name)
	}
	return apigen.UpdateTemplate200JSONResponse{Body: t, Headers: apigen.UpdateTemplate200ResponseHeaders{ETag: etag(t.Revision)}}, nil
}

// DeleteTemplate implements the operation deleteTemplate.
func (s *Server) DeleteTemplate(ctx context.Context, r apigen.DeleteTemplateRequestObject) (apigen.DeleteTemplateResponseObject, error) {
	e, err := s.editor(ctx, access.Inventory)
	if err != nil {
		return nil, err
	}
	of, err := revision(r.Params.IfMatch)
	if err != nil {
		return nil, err
	}
	if err := e.provisioning.Delete(ctx, Caller(ctx).Name, r.ID, of); err != nil {
		return nil, refusedTemplate(err, r.ID)
	}
	s.noted(ctx, "template removed", r.ID)
	return apigen.DeleteTemplate204Response{}, nil
}

// ListTemplateVersions implements the operation listTemplateVersions.
func (s *Server) ListTemplateVersions(ctx context.Context, r apigen.ListTemplateVersionsRequestObject) (apigen.ListTemplateVersionsResponseObject, error) {
	e, err := s.holdings()
	if err != nil {
		return nil, err
	}
	from, err := before(r.Params.After)
	if err != nil {
		return nil, err
	}
	t, err := e.template(ctx, r.ID, 0)
	if err != nil {
		return nil, err
	}
	n := pageSize(r.Params.Limit)
	found, err := e.provisioning.Versions(ctx, t.ID, from, n+1)
	if err != nil {
		return nil, err
	}
	items, next := entity.Page(orEmpty(found), n, func(v *schemas.TemplateVersion) string { return strconv.FormatInt(v.Version, 10) })
	return apigen.ListTemplateVersions200JSONResponse{Items: items, Next: next}, nil
}

// RenderTemplate implements the operation renderTemplate.
func (s *Server) RenderTemplate(ctx context.Context, r apigen.RenderTemplateRequestObject) (apigen.RenderTemplateResponseObject, error) {
	e, err := s.holdings()
	if err != nil {
		return nil, err
	}
	t, err := e.template(ctx, r.ID, r.Body.Version)
	if err != nil {
		return nil, err
	}
	h, _, err := s.hardware(ctx, e, r.Body.Server)
	if err != nil {
		return nil, err
	}
	text, steps, masked, err := provision.Render(ctx, &t.TemplateBody, r.Body.Parameters, &h, nil)
	var faults provision.Faults
	switch {
	case errors.As(err, &faults) && faults[0].Field == "server":
		return nil, wrong("body", faultsIn("body", faults)...)
	case errors.As(err, &faults) && strings.HasPrefix(faults[0].Field, "parameters"):
		return nil, wrong("body", faultsIn("body", faults)...)
	case errors.As(err, &faults):
		hint := "It is rendered with these parameters and for this server to something that Tinkerbell would not run."
		if len(h.Lacks) > 0 {
			hint = "Of " + h.Name + " it is not known: " + strings.Join(h.Lacks, ", ") + "."
		}
		return nil, fielded{problem{http.StatusConflict, "no_workflow", sentence(faults.Error()), hint}, faultsIn("stored", faults)}
	case err != nil:
		return nil, err
	}
	return apigen.RenderTemplate200JSONResponse(schemas.RenderedTemplate{
		TemplateID: t.ID, Template: t.Name, Version: t.Version, ServerID: h.ID, Server: h.Name, Text: text, Steps: steps, Secrets: masked,
	}), nil
}
