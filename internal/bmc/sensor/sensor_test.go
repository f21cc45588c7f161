package sensor

import "testing"

func TestVendorsNamesAreRead(t *testing.T) {
	for _, c := range []struct {
		name, context string
		q             Quantity
		metric, part  string
	}{
		{"FAN3", "", RPM, "auspex_fan_speed_rpm", "fan3"},
		{"FAN_12_F", "", RPM, "auspex_fan_speed_rpm", "fan12"},
		{"System Board Fan1A", "", RPM, "auspex_fan_speed_rpm", "fan1a"},
		{"FAN3 Duty", "", Percent, "auspex_fan_duty_ratio", "fan3"},
		{"FAN PWM", "", Percent, "auspex_fan_duty_ratio", ""},
		{"PSU0 Input", "", Watts, "auspex_psu_input_power_watts", "psu0"},
		{"PS1 Output Power", "PowerSupply", Watts, "auspex_psu_output_power_watts", "psu1"},
		{"PS2 Voltage", "", Volts, "auspex_psu_input_voltage_volts", "psu2"},
		{"HGX_GPU_0_TEMP_1", "", Celsius, "auspex_gpu_temperature_celsius", "gpu0"},
		{"TEMP_0", "HGX_GPU_5", Celsius, "auspex_gpu_temperature_celsius", "gpu5"},
		{"GPU2 HBM Temp", "", Celsius, "auspex_gpu_memory_temperature_celsius", "gpu2"},
		{"Inlet Temp", "", Celsius, "auspex_server_inlet_temperature_celsius", ""},
		{"Temp 1", "Exhaust", Celsius, "auspex_server_exhaust_temperature_celsius", ""},
		{"HGX_CPU_1_Energy_0", "", Joules, "auspex_cpu_energy_joules_total", "cpu1"},
		{"CPU1 DIMM_A3 Temp", "", Celsius, "auspex_dimm_temperature_celsius", "cpu1dimma3"},
		{"proc1dimm1", "", Celsius, "auspex_dimm_temperature_celsius", "proc1dimm1"},
		{"PROC 2 DIMM 1", "", Celsius, "auspex_dimm_temperature_celsius", "proc2dimm1"},
		{"P2-DIMM-1 Temp", "", Celsius, "auspex_dimm_temperature_celsius", "p2dimm1"},
		{"processormodule0dimm3", "", Celsius, "auspex_dimm_temperature_celsius", "processormodule0dimm3"},
		{"DIMM.Socket.A1", "", Celsius, "auspex_server_temperature_celsius", ""},
		{"HGX DIMM 4 Temp", "", Celsius, "auspex_dimm_temperature_celsius", "dimm4"},
		{"PSU.Slot.1_InputPower", "", Watts, "auspex_psu_input_power_watts", "psu1"},
		{"P12V", "", Volts, "auspex_server_voltage_volts", ""},
		{"Total Power", "", Watts, "auspex_server_power_watts", ""},
		{"Mem Power", "", Watts, "auspex_dimm_power_watts", ""},
		{"CPU Sub-system Power", "", Watts, "auspex_cpu_power_watts", ""},
		{"22-P/S 1", "PowerSupply", Celsius, "auspex_psu_temperature_celsius", "psu1"},
		{"04-P1 DIMM 1-6", "1 Memory", Celsius, "auspex_server_temperature_celsius", ""},
		{"57-NV Switch 1", "", Celsius, "auspex_nvswitch_temperature_celsius", "nvswitch1"},
		{"CPU 1 DTS", "CPU", Margin, "auspex_cpu_temperature_margin_celsius", "cpu1"},
	} {
		got := Classify(c.name, c.context, c.q)
		if got.Metric != c.metric || got.Part != c.part {
			t.Errorf("%q in %q: %s of %q, want %s of %q", c.name, c.context, got.Metric, got.Part, c.metric, c.part)
		}
	}
}

func TestUnitsAreReadAsCodesAndAsWords(t *testing.T) {
	for text, c := range map[string]struct {
		q    Quantity
		in   float64
		want float64
	}{
		"Cel": {Celsius, 40, 40}, "C": {Celsius, 40, 40}, "DegreesC": {Celsius, 40, 40}, "[degF]": {Celsius, 104, 40}, "K": {Celsius, 313.15, 40},
		"RPM": {RPM, 1, 1}, "{rev}/min": {RPM, 1, 1}, "Watts": {Watts, 1, 1}, "kW": {Watts, 2, 2000}, "mW": {Watts, 2000, 2},
		"Amps": {Amperes, 1, 1}, "mA": {Amperes, 1000, 1},
		"V": {Volts, 1, 1}, "Volts": {Volts, 1, 1}, "kPa": {Pascals, 101, 101000}, "kW.h": {Joules, 1, 3.6e6}, "MHz": {Hertz, 1, 1e6},
		"%": {Percent, 1, 1}, "CFM": {AirFlow, 60, 0.028316846592},
		"m": {"", 0, 0}, "": {"", 0, 0}, "count": {"", 0, 0},
	} {
		q, scale, offset := Unit(text)
		if got := c.in*scale + offset; q != c.q || q != "" && (got-c.want > 1e-9 || c.want-got > 1e-9) {
			t.Errorf("%v %q is %v of %q, want %v of %q", c.in, text, got, q, c.want, c.q)
		}
	}
}

func FuzzUnit(f *testing.F) {
	for _, s := range []string{"Cel", "kW.h", "{rev}/min", "[cft_i]/min", "m", "%", "KK"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		if _, scale, _ := Unit(s); scale <= 0 {
			t.Errorf("%q has scale %v", s, scale)
		}
	})
}
