package openapi

import (
	"slices"
	"strings"
	"testing"

	"github.com/getkin/kin-openapi/openapi3"
)

// promised are routes and their methods that people build on. {} stands for a parameter.
const promised = `
users GET POST
users/{} GET PUT
users/{}/allocations GET
servers GET POST
servers/{} GET PUT DELETE
servers/{}/power POST
servers/{}/status GET
servers/{}/bios POST
servers/{}/firmware POST
servers/{}/gpus GET POST
servers/{}/config GET PUT
servers/{}/config/versions GET
gpus GET
gpus/{} GET PUT
gpus/{}/status GET
gpus/{}/metrics GET
gpus/{}/config GET POST PUT
gpus/{}/config/versions GET
allocations GET POST
allocations/{} GET PUT DELETE
allocations/{}/start POST
allocations/{}/stop POST
allocations/{}/status GET
workflows GET POST
workflows/{} GET DELETE
workflows/deploy POST
workflows/cleanup POST
events GET POST
events/{} GET
alerts GET POST
alerts/{} PUT
alerts/{}/correlation GET
operations/{}/power POST
pools GET POST
pools/{} GET PUT DELETE
quotas GET POST
quotas/{} GET PUT DELETE
reservations GET POST
reservations/{} GET PUT DELETE
maintenance GET POST
maintenance/{} GET PUT DELETE
teams GET POST
teams/{} GET PUT DELETE
webhooks GET POST
webhooks/{} GET PUT DELETE
tokens GET POST
tokens/{} GET PUT DELETE
assets GET
assets/{}/versions GET
search GET
`

// fields are those that people read of a record, whatever else it has.
var fields = map[string]string{
	"User":         "id username email role status created_at updated_at teams",
	"Server":       "id name model status ipmi_ip redfish_url management_ip serial_number created_at updated_at pool labels health risk allocation place",
	"ServerRecord": "id name model status ipmi_ip redfish_url management_ip serial_number created_at updated_at pool labels health risk allocation place",
	"GPU":          "id server_id model status memory_gb serial_number driver_version cuda_version",
	"Allocation":   "id user_id server_id server_ids gpu_ids group_id status start_time end_time purpose created_at updated_at",
	"Workflow":     "id allocation_id tinkerbell_id type status steps started_at completed_at",
	"WorkflowStep": "name status started_at completed_at message",
	"ServerConfig": "id server_id version bios_config raid_config network_config created_by created_at applied differences",
	"GPUConfig":    "id gpu_id version power_limit memory_clock driver_config created_by created_at applied differences",
	"NewEvent":     "source_type source_id event_type severity data occurred_at",
	"Event":        "source_type source_id event_type severity data occurred_at type attrs",
	"NewAlert":     "source_id alert_type severity priority",
	"Alert":        "priority status source_type source_id alert_type event_type triggered_at occurred_at data acknowledged_by acknowledged_at resolved_by comments type severity state attrs",
	"GPUStatus":    "state utilization temperature power memory driver processes timestamp",
}

// Routes and fields may be added, and none of these goes.
func TestWhatWasPromisedIsInTheDocument(t *testing.T) {
	doc, err := openapi3.NewLoader().LoadFromData(Document)
	if err != nil {
		t.Fatal(err)
	}
	found := make(map[string]*openapi3.PathItem)
	for path, item := range doc.Paths.Map() {
		parts := strings.Split(strings.TrimPrefix(path, "/"), "/")
		for k := range parts {
			if strings.HasPrefix(parts[k], "{") {
				parts[k] = "{}"
			}
		}
		found[strings.Join(parts, "/")] = item
	}
	for line := range strings.Lines(strings.TrimSpace(promised)) {
		words := strings.Fields(line)
		item := found[words[0]]
		for _, method := range words[1:] {
			if item == nil || item.GetOperation(method) == nil {
				t.Errorf("there is no %s %s", method, words[0])
				continue
			}
			if method == "PUT" {
				takes := slices.ContainsFunc(item.Put.Parameters, func(p *openapi3.ParameterRef) bool { return p.Value.Name == "If-Match" })
				if tag := item.Put.Responses.Value("200").Value.Headers["ETag"]; !takes || tag == nil || item.Get == nil || item.Get.Responses.Value("200").Value.Headers["ETag"] == nil {
					t.Errorf("%s cannot be changed only where it is as it was read", words[0])
				}
			}
			op := item.GetOperation(method)
			if ok := op.Responses.Value("202"); ok != nil && ok.Value.Headers["Location"] == nil {
				t.Errorf("%s %s does not say where it can be followed", method, words[0])
			}
		}
	}
	for name, want := range fields {
		s := doc.Components.Schemas[name]
		if s == nil {
			t.Errorf("there is no %s", name)
			continue
		}
		for field := range strings.FieldsSeq(want) {
			if s.Value.Properties[field] == nil {
				t.Errorf("%s has no %s", name, field)
			}
		}
	}
}
