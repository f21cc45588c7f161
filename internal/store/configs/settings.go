package configs

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strconv"

	"auspex/schemas"
)

// The steps of control that set a configuration.
const (
	SetGPU     = "configure_gpu"
	SetBIOS    = "set_bios"
	setRAID    = "set_raid"
	setNetwork = "set_network"
)

// UnsetError is a field of a configuration that control cannot set as it is.
type UnsetError struct{ Field, Detail string }

// Error implements error.
func (e *UnsetError) Error() string { return e.Field + ": " + e.Detail }

// parameters of set_bios that are no attributes.
var parameters = []string{"reset", "force", "defaults"}

// driverSettings are those of driver_config that control can set, by the name of its parameter.
var driverSettings = []string{"ecc", "mig", "persistence"}

// GPUSettings are the parameters of the step [SetGPU] that sets a GPU as a version says; the error
// is an [UnsetError].
func GPUSettings(c *schemas.GPUConfig) (map[string]string, error) {
	with := map[string]string{}
	if c.PowerLimit != nil {
		with["power_limit"] = strconv.FormatFloat(*c.PowerLimit, 'f', -1, 64)
	}
	left := maps.Clone(c.Driver)
	sm, clocked := left["sm_clock"].(float64)
	delete(left, "sm_clock")
	if (c.MemoryClock != nil) != clocked {
		return nil, &UnsetError{"memory_clock", "it is set together with driver_config.sm_clock, in MHz, or not at all"}
	}
	if clocked {
		with["application_clocks"] = fmt.Sprintf("%d,%d", *c.MemoryClock, int64(sm))
	}
	for _, name := range driverSettings {
		switch v := left[name].(type) {
		case bool:
			with[name] = strconv.FormatBool(v)
			delete(left, name)
		case nil:
		default:
			return nil, &UnsetError{"driver_config." + name, "it is true or false"}
		}
	}
	for _, name := range slices.Sorted(maps.Keys(left)) {
		return nil, &UnsetError{"driver_config." + name, "no driver of control sets it"}
	}
	if len(with) == 0 {
		return nil, &UnsetError{"power_limit", "the configuration has no setting"}
	}
	return with, nil
}

// ServerSettings are the step that sets a server as a version says, and its parameters; the error is
// an [UnsetError]. A configuration is not set in part: what no driver sets of it is what is asked for.
func ServerSettings(c *schemas.ServerConfig) (kind string, with map[string]string, err error) {
	kind, settings := SetBIOS, c.BIOS
	switch {
	case len(c.RAID) > 0:
		kind, settings = setRAID, c.RAID
	case len(c.Network) > 0:
		kind, settings = setNetwork, c.Network
	case len(c.BIOS) == 0:
		return "", nil, &UnsetError{"bios_config", "the configuration has no setting"}
	}
	with = make(map[string]string, len(settings))
	for name, v := range settings {
		if kind == SetBIOS && slices.Contains(parameters, name) {
			return "", nil, &UnsetError{"bios_config." + name, "the name is that of a parameter"}
		}
		switch v := v.(type) {
		case float64:
			with[name] = strconv.FormatFloat(v, 'f', -1, 64)
		case string, bool:
			with[name] = fmt.Sprint(v)
		default:
			if kind == SetBIOS {
				return "", nil, &UnsetError{"bios_config." + name, "an attribute is a text, a number, or true or false"}
			}
			text, err := json.Marshal(v)
			if err != nil {
				return "", nil, err
			}
			with[name] = string(text)
		}
	}
	return kind, with, nil
}

// FieldOf is the field of a configuration that a setting is of.
func FieldOf(kind, setting string) string {
	switch {
	case kind == schemas.ConfigOfServer:
		return "bios_config." + setting
	case setting == "power_limit":
		return setting
	case setting == "application_clocks":
		return "memory_clock"
	}
	return "driver_config." + setting
}
