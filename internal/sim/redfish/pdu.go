package redfish

import (
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"strings"
	"time"

	"auspex/internal/sim/device"
)

const (
	equipmentPath = root + "/PowerEquipment"
	rackPDUsPath  = equipmentPath + "/RackPDUs"
	pduPath       = rackPDUsPath + "/1"
	outletsPath   = pduPath + "/Outlets"
	outletAction  = "/Actions/Outlet.PowerControl"
)

// pdu is the service of one power distribution unit (DSP2046, PowerEquipment): a small part of Redfish behind the
// same login as that of a board controller.
type pdu struct {
	p device.PDU
	h *handler // for its login, answers and refusals
}

// NewPDUHandler returns the Redfish service of a PDU.
func NewPDUHandler(p device.PDU) http.Handler {
	return &pdu{p: p, h: &handler{b: pduLogin{p: p}, sessions: sessions{byToken: map[string]*session{}}}}
}

// pduLogin is what of a controller the login asks: users and faults.
type pduLogin struct {
	device.BMC
	p device.PDU
}

// Password implements device.BMC.
func (l pduLogin) Password(user string) (string, bool) { return l.p.Password(user) }

// Fault implements device.BMC.
func (l pduLogin) Fault() device.Fault { return l.p.Fault() }

// ServeHTTP implements [http.Handler].
func (d *pdu) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, maxBody))
	if err != nil {
		d.h.fail(w, &problem{status: http.StatusRequestEntityTooLarge, id: "GeneralError", text: "The request body cannot be read."})
		return
	}
	if f := d.p.Fault(); f.Away || f.Mute {
		panic(http.ErrAbortHandler)
	}
	path := cleanPath(r.URL.Path)
	if !d.h.open(path, r.Method) && !d.h.authenticated(r) {
		d.h.fail(w, &problem{status: http.StatusUnauthorized, id: "NoValidSession", text: "There is no valid session established with the implementation."})
		return
	}
	switch {
	case r.Method == http.MethodPost && path == sessionsPath:
		d.h.login(w, body)
	case r.Method == http.MethodDelete:
		d.h.remove(w, path)
	case r.Method == http.MethodPost:
		d.post(w, r, path, body)
	case r.Method == http.MethodGet:
		doc := d.resource(path)
		out, err := json.Marshal(doc)
		if doc == nil || err != nil {
			d.h.missing(w, path)
			return
		}
		d.h.write(w, http.StatusOK, out)
	default:
		d.h.fail(w, &problem{status: http.StatusMethodNotAllowed, id: "OperationNotAllowed", text: "The HTTP method is not allowed on this resource."})
	}
}

func (d *pdu) resource(path string) object {
	info := d.p.Info()
	switch path {
	case root:
		return object{
			"@odata.id": root, "@odata.type": "#ServiceRoot.v1_17_0.ServiceRoot", "Id": "RootService", "Name": "Root Service", "RedfishVersion": "1.20.0",
			"PowerEquipment": link(equipmentPath), "SessionService": link(root + "/SessionService"), "Links": object{"Sessions": link(sessionsPath)},
		}
	case equipmentPath:
		return object{
			"@odata.id": path, "@odata.type": "#PowerEquipment.v1_2_2.PowerEquipment", "Id": "PowerEquipment", "Name": "Power equipment",
			"Status": enabled("OK"), "RackPDUs": link(rackPDUsPath),
		}
	case rackPDUsPath:
		return collection(path, "PowerDistributionCollection", "Rack PDUs", []string{"1"})
	case pduPath:
		return object{
			"@odata.id": path, "@odata.type": "#PowerDistribution.v1_4_0.PowerDistribution", "Id": "1", "Name": info.Name, "EquipmentType": "RackPDU",
			"Manufacturer": info.Manufacturer, "Model": info.Model, "SerialNumber": info.Serial, "FirmwareVersion": info.Firmware, "Status": enabled("OK"),
			"Outlets": link(outletsPath),
		}
	case outletsPath:
		var ids []string
		for _, o := range d.p.Outlets() {
			ids = append(ids, o.ID)
		}
		return collection(path, "OutletCollection", "Outlets", ids)
	}
	if id, ok := strings.CutPrefix(path, outletsPath+"/"); ok {
		for _, o := range d.p.Outlets() {
			if o.ID == id {
				return outletDoc(path, &o)
			}
		}
	}
	return nil
}

func outletDoc(path string, o *device.Outlet) object {
	state := "Off"
	if o.On {
		state = "On"
	}
	return object{
		"@odata.id": path, "@odata.type": "#Outlet.v1_4_3.Outlet", "Id": o.ID, "Name": "Outlet " + o.ID, "UserLabel": o.Feeds, "PowerState": state,
		"PowerEnabled": o.On, "PowerCycleDelaySeconds": device.CycleDelay / time.Second, "Status": enabled("OK"),
		"Actions": object{"#Outlet.PowerControl": object{
			"target": path + outletAction, "PowerState@Redfish.AllowableValues": []string{"On", "Off", "PowerCycle"},
		}},
	}
}

func (d *pdu) post(w http.ResponseWriter, r *http.Request, path string, body []byte) {
	id, ok := strings.CutSuffix(strings.TrimPrefix(path, outletsPath+"/"), outletAction)
	doc, p := decodeObject(body)
	if p != nil {
		d.h.fail(w, p)
		return
	}
	state, _ := doc["PowerState"].(string)
	err := errors.New("no such action")
	if ok {
		err = d.p.Switch(id, state, r.Header.Get("X-Request-Id"))
	}
	switch {
	case errors.Is(err, device.ErrUnsupported):
		d.h.fail(w, &problem{
			status: http.StatusBadRequest, id: "ActionParameterValueNotInList",
			text: "The value " + state + " for the parameter PowerState in the action Outlet.PowerControl is not in the list of acceptable values.",
			args: []string{state, "PowerState", "Outlet.PowerControl"}, property: "PowerState",
		})
	case err != nil:
		d.h.missing(w, path)
	default:
		w.WriteHeader(http.StatusNoContent)
	}
}
