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
		{"CPU1 DIMM_A3 Temp", "", Celsius, "auspex_cpu_temperature_celsius", "cpu1"},
		{"PSU.Slot.1_InputPower", "", Watts, "auspex_psu_input_power_watts", "psu1"},
		{"P12V", "", Volts, "auspex_server_voltage_volts", ""},
		{"Total Power", "", Watts, "auspex_server_power_watts", ""},
	} {
		got := Classify(c.name, c.context, c.q)
		if got.Metric != c.metric || got.Part != c.part {
			t.Errorf("%q in %q: %s of %q, want %s of %q", c.name, c.context, got.Metric, got.Part, c.metric, c.part)
		}
	}
}
