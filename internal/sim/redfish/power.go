package redfish

import (
	"errors"
	"net/http"
	"strings"

	"auspex/internal/sim/device"
)

// powerPath is the older form of the power readings, which carries the limit (DSP2046, Power, PowerControl/PowerLimit).
const powerPath = boardPath + "/Power"

// limitOf is what of a power resource can be written.
func limitOf(doc object) any {
	if control, ok := doc["PowerControl"].([]object); ok && len(control) > 0 {
		return control[0]["PowerLimit"]
	}
	return nil
}

// patchPower takes the limit of the first PowerControl; null is none.
func (h *handler) patchPower(doc object, requestID string) *problem {
	for name, val := range doc {
		if strings.HasPrefix(name, "@") {
			continue
		}
		members, ok := val.([]any)
		if name != "PowerControl" || !ok || len(members) != 1 {
			return unknownProperty(name)
		}
		member, _ := members[0].(object)
		for key, val := range member {
			limit, ok := val.(object)
			if key != "PowerLimit" || !ok {
				return unknownProperty("PowerControl/0/" + key)
			}
			for key, val := range limit {
				watts, ok := val.(float64)
				if key != "LimitInWatts" || !ok && val != nil {
					return unknownProperty("PowerControl/0/PowerLimit/" + key)
				}
				if err := h.limiter.SetPowerLimit(watts, ok, "redfish", requestID); err != nil {
					return limitProblem(err)
				}
			}
		}
	}
	return nil
}

func limitProblem(err error) *problem {
	if errors.Is(err, device.ErrUnsupported) {
		return &problem{
			status: http.StatusBadRequest, id: "PropertyValueOutOfRange", text: "The power limit is refused: " + err.Error() + ".", property: "PowerControl/0/PowerLimit/LimitInWatts",
		}
	}
	return &problem{status: http.StatusInternalServerError, id: "InternalError", text: "The power limit failed: " + err.Error() + "."}
}
