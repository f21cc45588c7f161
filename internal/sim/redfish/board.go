package redfish

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"mime"
	"mime/multipart"
	"net/http"
	"slices"
	"strings"
	"time"

	"auspex/internal/sim/device"
)

const (
	biosPath      = systemPath + "/Bios"
	biosNextPath  = biosPath + "/Settings"
	registryID    = "AuspexBiosAttributeRegistry.v1_0_0"
	registryPath  = root + "/Registries/" + registryID
	registryFile  = root + "/RegistryStore/" + registryID + ".json"
	updatePath    = root + "/UpdateService"
	simpleTarget  = updatePath + "/Actions/UpdateService.SimpleUpdate"
	pushPath      = updatePath + "/update-multipart"
	firmwarePath  = updatePath + "/FirmwareInventory"
	tasksPath     = root + "/TaskService/Tasks"
	monitorsPath  = root + "/TaskService/TaskMonitors"
	managerTarget = managerPath + "/Actions/Manager.Reset"
)

var managerResets = []string{"GracefulRestart", "ForceRestart"}

// boardPart answers for what a controller does with its board; nil where it does nothing, or for
// another path.
func (v *view) boardPart(path string) object {
	d := v.h.board
	if d == nil {
		return nil
	}
	switch path {
	case biosPath:
		attrs, _, applied := d.BIOS()
		set := object{
			"@odata.type": "#Settings.v1_3_5.Settings", "SettingsObject": link(biosNextPath), "SupportedApplyTimes": []string{"OnReset"},
		}
		if !applied.IsZero() {
			set["Time"] = stamp(applied)
		}
		return object{
			"@odata.id": path, "@odata.type": "#Bios.v1_2_3.Bios", "Id": "Bios", "Name": "BIOS attributes", "AttributeRegistry": registryID,
			"Attributes": attrs, "@Redfish.Settings": set,
		}
	case biosNextPath:
		_, pending, _ := d.BIOS()
		return object{
			"@odata.id": path, "@odata.type": "#Bios.v1_2_3.Bios", "Id": "Settings", "Name": "BIOS attributes to come", "AttributeRegistry": registryID,
			"Attributes": pending,
		}
	case root + "/Registries":
		return collection(path, "MessageRegistryFileCollection", "Registries", []string{registryID})
	case registryPath:
		return object{
			"@odata.id": path, "@odata.type": "#MessageRegistryFile.v1_1_5.MessageRegistryFile", "Id": registryID, "Name": "BIOS attribute registry",
			"Registry": registryID, "Languages": []string{"en"}, "Location": []object{{"Language": "en", "Uri": registryFile}},
		}
	case registryFile:
		return registry()
	case updatePath:
		return object{
			"@odata.id": path, "@odata.type": "#UpdateService.v1_14_0.UpdateService", "Id": "UpdateService", "Name": "Update Service",
			"ServiceEnabled": true, "Status": enabled("OK"), "FirmwareInventory": link(firmwarePath), "MultipartHttpPushUri": pushPath,
			"Actions": object{"#UpdateService.SimpleUpdate": object{
				"target": simpleTarget, "TransferProtocol@Redfish.AllowableValues": []string{"HTTP", "HTTPS"},
			}},
		}
	case firmwarePath:
		var ids []string
		for _, w := range d.Firmware() {
			ids = append(ids, w.ID)
		}
		return collection(path, "SoftwareInventoryCollection", "Firmware", ids)
	case root + "/TaskService":
		return object{
			"@odata.id": path, "@odata.type": "#TaskService.v1_2_1.TaskService", "Id": "TaskService", "Name": "Tasks", "ServiceEnabled": true,
			"Tasks": link(tasksPath), "Status": enabled("OK"),
		}
	case tasksPath:
		var ids []string
		for _, t := range d.Tasks() {
			ids = append(ids, t.ID)
		}
		return collection(path, "TaskCollection", "Tasks", ids)
	}
	if id, ok := strings.CutPrefix(path, firmwarePath+"/"); ok {
		for _, w := range d.Firmware() {
			if w.ID == id {
				return object{
					"@odata.id": path, "@odata.type": "#SoftwareInventory.v1_10_0.SoftwareInventory", "Id": id, "Name": w.Name, "Version": w.Version,
					"Updateable": w.Updateable, "Status": enabled("OK"),
				}
			}
		}
	}
	for _, below := range []string{tasksPath, monitorsPath} {
		if id, ok := strings.CutPrefix(path, below+"/"); ok {
			for _, t := range d.Tasks() {
				if t.ID == id {
					return taskDoc(&t)
				}
			}
		}
	}
	return nil
}

func taskDoc(t *device.Task) object {
	doc := object{
		"@odata.id": tasksPath + "/" + t.ID, "@odata.type": "#Task.v1_7_4.Task", "Id": t.ID, "Name": "Update", "TaskState": t.State,
		"TaskMonitor": monitorsPath + "/" + t.ID, "PercentComplete": t.Percent, "StartTime": stamp(t.Began), "Messages": []object{},
	}
	if !t.Ended.IsZero() {
		doc["EndTime"], doc["TaskStatus"] = stamp(t.Ended), "OK"
		if t.State != "Completed" {
			doc["TaskStatus"] = "Critical"
		}
		doc["Messages"] = []object{{"MessageId": "Update.1.0", "Message": t.Message}}
	}
	return doc
}

// registry describes the attributes (DSP0270, AttributeRegistry).
func registry() object {
	attrs := make([]object, 0, len(device.Attributes))
	for _, a := range device.Attributes {
		o := object{"AttributeName": a.Name, "Type": a.Kind, "ReadOnly": a.ReadOnly, "DefaultValue": a.Default, "ResetRequired": true}
		switch a.Kind {
		case "Enumeration":
			values := make([]object, 0, len(a.Values))
			for _, v := range a.Values {
				values = append(values, object{"ValueName": v, "ValueDisplayName": v})
			}
			o["Value"] = values
		case "Integer":
			o["LowerBound"], o["UpperBound"] = a.Low, a.Top
		case "String":
			o["MinLength"], o["MaxLength"] = 0, a.Top
		}
		attrs = append(attrs, o)
	}
	return object{
		"@odata.type": "#AttributeRegistry.v1_3_9.AttributeRegistry", "Id": registryID, "Name": "BIOS attribute registry", "Language": "en",
		"OwningEntity": "Auspex", "RegistryVersion": "1.0.0", "RegistryEntries": object{"Attributes": attrs},
	}
}

// patchBIOS takes attributes for the next start: all of them, or none.
func (h *handler) patchBIOS(doc object) *problem {
	attrs, _ := doc["Attributes"].(object)
	for name := range doc {
		if !strings.HasPrefix(name, "@") && name != "Attributes" {
			return unknownProperty(name)
		}
	}
	bad := func(name, id, text string) *problem {
		return &problem{status: http.StatusBadRequest, id: id, text: text, args: []string{name}, property: "Attributes/" + name}
	}
	for _, name := range slices.Sorted(maps.Keys(attrs)) {
		i := slices.IndexFunc(device.Attributes, func(a device.Attribute) bool { return a.Name == name })
		if i < 0 {
			return bad(name, "PropertyUnknown", "The property "+name+" is not in the list of valid properties for the resource.")
		}
		a, v := &device.Attributes[i], attrs[name]
		ok := false
		switch a.Kind {
		case "Enumeration":
			s, is := v.(string)
			ok = is && slices.Contains(a.Values, s)
		case "Boolean":
			_, ok = v.(bool)
		case "Integer":
			n, is := v.(float64)
			ok = is && n == float64(int(n)) && int(n) >= a.Low && int(n) <= a.Top
		case "String":
			s, is := v.(string)
			ok = is && len(s) <= a.Top
		}
		switch {
		case a.ReadOnly:
			return unknownProperty(name)
		case !ok:
			return bad(name, "PropertyValueNotInList", fmt.Sprintf("The value %v for the property %s is not in the list of acceptable values.", v, name))
		}
	}
	h.board.SetBIOS(attrs)
	return nil
}

// restart starts the controller anew.
func (h *handler) restart(w http.ResponseWriter, r *http.Request, body []byte) {
	doc, p := decodeObject(body)
	if p != nil {
		h.fail(w, p)
		return
	}
	if kind, _ := doc["ResetType"].(string); !slices.Contains(managerResets, kind) {
		h.fail(w, &problem{
			status: http.StatusBadRequest, id: "ActionParameterValueNotInList",
			text: "The value " + kind + " for the parameter ResetType in the action Manager.Reset is not in the list of acceptable values.",
			args: []string{kind, "ResetType", "Manager.Reset"}, property: "ResetType",
		})
		return
	}
	h.board.Restart("redfish", r.Header.Get("X-Request-Id"))
	w.WriteHeader(http.StatusNoContent)
}

// fetchTime bounds how long a controller waits for an image.
const fetchTime = 10 * time.Second

// simpleUpdate fetches an image and installs it.
func (h *handler) simpleUpdate(w http.ResponseWriter, r *http.Request, body []byte) {
	var q struct {
		ImageURI         string
		TransferProtocol string
		Targets          []string
	}
	uri := ""
	if err := json.Unmarshal(body, &q); err == nil {
		uri = q.ImageURI
		if !strings.Contains(uri, "://") && q.TransferProtocol != "" {
			uri = strings.ToLower(q.TransferProtocol) + "://" + uri
		}
	}
	if !strings.HasPrefix(uri, "http://") && !strings.HasPrefix(uri, "https://") {
		h.fail(w, &problem{
			status: http.StatusBadRequest, id: "ActionParameterMissing",
			text: "The action UpdateService.SimpleUpdate requires the parameter ImageURI, over HTTP or HTTPS.", property: "ImageURI",
		})
		return
	}
	image, err := fetch(r.Context(), uri)
	if err != nil {
		h.fail(w, &problem{status: http.StatusBadRequest, id: "ResourceAtUriInUnknownFormat", text: "The image at " + uri + " cannot be read: " + err.Error() + "."})
		return
	}
	h.update(w, r, image, q.Targets)
}

func fetch(ctx context.Context, uri string) ([]byte, error) {
	ctx, cancel := context.WithTimeout(ctx, fetchTime)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, uri, http.NoBody)
	if err != nil {
		return nil, err
	}
	req.Close = true
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return nil, err
	}
	defer func() { _ = resp.Body.Close() }()
	if resp.StatusCode != http.StatusOK {
		return nil, errors.New(resp.Status)
	}
	return io.ReadAll(io.LimitReader(resp.Body, maxBody))
}

// push installs an image that is sent (DSP0266, section 14.3, multipart HTTP push).
func (h *handler) push(w http.ResponseWriter, r *http.Request, body []byte) {
	kind, params, err := mime.ParseMediaType(r.Header.Get("Content-Type"))
	if err != nil || kind != "multipart/form-data" {
		h.fail(w, &problem{status: http.StatusUnsupportedMediaType, id: "GeneralError", text: "The body must be multipart/form-data."})
		return
	}
	var q struct{ Targets []string }
	var image []byte
	for parts := multipart.NewReader(bytes.NewReader(body), params["boundary"]); ; {
		p, err := parts.NextPart()
		if err != nil {
			break
		}
		content, _ := io.ReadAll(p)
		switch p.FormName() {
		case "UpdateParameters":
			if json.Unmarshal(content, &q) != nil {
				h.fail(w, &problem{status: http.StatusBadRequest, id: "MalformedJSON", text: "UpdateParameters is no JSON."})
				return
			}
		case "UpdateFile":
			image = content
		}
	}
	h.update(w, r, image, q.Targets)
}

func (h *handler) update(w http.ResponseWriter, r *http.Request, image []byte, targets []string) {
	id, err := h.board.Update(image, targets, "redfish", r.Header.Get("X-Request-Id"))
	if err != nil {
		h.fail(w, &problem{status: http.StatusBadRequest, id: "GeneralError", text: "The update cannot begin: " + err.Error() + "."})
		return
	}
	for _, t := range h.board.Tasks() {
		if t.ID != id {
			continue
		}
		if out, err := json.Marshal(taskDoc(&t)); err == nil {
			w.Header().Set("Location", monitorsPath+"/"+id)
			h.write(w, http.StatusAccepted, out)
			return
		}
	}
	w.WriteHeader(http.StatusAccepted)
}
