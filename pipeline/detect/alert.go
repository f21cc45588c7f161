package detect

import (
	"auspex/internal/cmdb"
	"auspex/schemas"
)

// AttrRule is the attribute that names the metric rule behind an event.
const AttrRule = "rule"

// admits tells whether an event becomes an alert: it is bad enough, or it ends a
// condition, or its type is wanted whatever its severity.
func (d *Detector) admits(ev *schemas.Event) bool {
	switch {
	case ev.Type == schemas.EventMaintenanceDeclared || ev.Type == schemas.EventMaintenanceEnded:
		return true // the correlator must know, whatever people want to hear of
	case d.ignore[ev.Type]:
		return false
	case ev.External() && ev.Attrs[schemas.AttrAlert] != "":
		return true // somebody posted an alert
	}
	return ev.Severity.Rank() >= d.cfg.MinSeverity.Rank() || ev.State == schemas.StateCleared || d.admit[ev.Type]
}

// distinguishing attributes tell conditions of one resource, type and code apart
// where the part is not in the inventory.
var distinguishing = []string{"sensor", "port", "gpu", "pci", "slot", "part", "serial", "peer", "collector", "object", "field", AttrRule}

// fingerprint is the same for each report of one condition, its end included:
// the code of an end may differ (Redfish has a message for the loss of an input
// and another one for its return), so codes count for moments and for the types
// that say nothing by themselves.
func fingerprint(ev *schemas.Event, resource string) string {
	detail := make([]string, 0, 2+len(distinguishing))
	code := ev.Code
	switch ev.Type {
	case schemas.EventBMCSEL, schemas.EventBMCEvent, schemas.EventServiceFailed:
	default:
		if ev.State != "" {
			code = ""
		}
	}
	detail = append(detail, code, ev.Source)
	for _, k := range distinguishing {
		detail = append(detail, ev.Attrs[k])
	}
	if setting := ev.Attrs["setting"]; setting != "" { // of a configuration; what has none keeps the fingerprint that it had before there were any
		detail = append(detail, "setting", setting)
	}
	return schemas.EventID(resource, "", ev.Type, detail...)
}

func makeAlert(ev schemas.Event, p cmdb.Placement) schemas.Alert {
	if ev.Resource != p.Resource {
		ev.SetAttr("device", ev.Resource)
	}
	a := schemas.Alert{
		Event: ev, Site: p.Site, Server: p.Server, Rack: p.Rack,
		Rule: "event/" + ev.Type, Fingerprint: fingerprint(&ev, p.Resource), Status: schemas.AlertFiring,
	}
	a.Resource = p.Resource
	if rule := ev.Attrs[AttrRule]; rule != "" {
		a.Rule = "metric/" + rule
	}
	if ev.State == schemas.StateCleared {
		a.Status, a.ResolvedAt = schemas.AlertResolved, ev.Time
	}
	a.Labels = map[string]string{"alertname": a.Type, "resource": a.Resource, "severity": string(a.Severity), "source": a.Source}
	for k, v := range map[string]string{"code": a.Code, "kind": p.Kind, "server": p.Server, "rack": p.Rack, "site": p.Site, "model": p.Model} {
		if v != "" {
			a.Labels[k] = v
		}
	}
	a.Annotations = map[string]string{}
	for k, v := range map[string]string{"summary": ev.Message, "action": ev.Attrs["action"]} {
		if v != "" {
			a.Annotations[k] = v
		}
	}
	return a
}
