package target

// Metadata of calls to gNOI's System and Healthz (openconfig/gnoi, system.proto and healthz.proto) of
// a node agent, which have no field for them.
const (
	// MetaAction holds the id of an act: of the one that is asked for, or asked about.
	MetaAction = "auspex-action"
	// MetaWould, with any value, makes RebootStatus tell what Reboot would do now: as its
	// reason what is reset together, as its message who stands against it. A server that
	// does not know it tells how it is, and does nothing either.
	MetaWould = "auspex-would"
	// MetaLevel is how deep Healthz.Check looks, 1 to 3; 1 where it is missing.
	MetaLevel = "auspex-level"
)
