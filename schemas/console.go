package schemas

// MetricConsoles is how many sessions a board controller takes at a time on a console that it offers, 0 where the service of
// it is off. Its labels: console (below), protocol (SSH, IPMI, Telnet, KVMIP), port (where it is said).
const MetricConsoles = "auspex_server_console_sessions"

// Kinds of consoles.
const (
	ConsoleSerial    = "serial"
	ConsoleGraphical = "graphical"
)
