package reasons

// Ids of why something is in its state, or of what it waits for.
const (
	Cancelled   = "why.cancelled"
	Expired     = "why.expired"
	EndsAt      = "why.ends_at"
	RetiredBy   = "why.retired_by"
	Incident    = "why.incident"
	Closed      = "why.incident_closed"
	Blamed      = "why.blamed"
	Workflow    = "why.workflow"
	WorkflowSo  = "why.workflow_so"
	On          = "why.on"
	Status      = "why.status"
	StatusSo    = "why.status_so"
	NotCleaned  = "why.not_cleaned"
	Quarantined = "why.quarantined"
	Waits       = "why.waits"
	HasWorkflow = "why.has_workflow"
	KeepsConfig = "why.keeps_config"
	UndoConfig  = "why.undoes_config"
	NotGiven    = "why.not_given"
	CannotMove  = "why.cannot_move"

	CancelledBy  = "why.cancelled_by"
	NotAllowed   = "why.sweep_not_allowed"
	NoTrust      = "why.sweep_no_trust"
	NoCredential = "why.sweep_no_credential"

	IsGone    = "why.is_gone"
	IsUnready = "why.is_unready"
	IsHeld    = "why.is_held"
	IsRepair  = "why.is_repair"
	IsTaken   = "why.is_taken"
	HasNoFree = "why.gpu_unavailable"
	HasNoGPU  = "why.no_such_gpu"
	IsUnclean = "why.is_unclean"
	IsBare    = "why.is_bare"

	Repair = "why.repair" // what a step of a repair is at, and why it is repaired
)

// Ids of what was seen of a step of a workflow.
const (
	Step      = "why.step"
	NoDriver  = "why.no_driver"
	TooLong   = "why.too_long"
	TooLongSo = "why.too_long_so"

	Asked     = "why.asked"
	NotAsked  = "why.not_asked"
	Looks     = "why.looks"
	DoesNot   = "why.does_nothing"
	Proposes  = "why.only_proposes"
	ActionSo  = "why.action_so"
	SaysNot   = "why.does_not_say"
	WorksOn   = "why.works_on"
	ActionIs  = "why.action"
	Well      = "why.well"
	Runs      = "why.still_runs"
	Idle      = "why.idle"
	Blind     = "why.blind"
	ReadError = "why.read_error"
	Unread    = "why.unread"
	Read      = "why.read"
	ReadParts = "why.read_parts"
	NoReader  = "why.read_but"
	And       = "why.and_more"
	List      = "why.list"

	ModeHolds   = "why.mode_holds"
	NoBaseline  = "why.no_baseline"
	NoBoard     = "why.no_board"
	BoardUnread = "why.board_unread"
	AsSeen      = "why.as_seen"
	Differs     = "why.differs"
	DiffersIn   = "why.differs_in"
	NotThere    = "why.not_in_inventory"
	CountsAre   = "why.counts_are"
	Lacks       = "why.record_lacks"
	HostRead    = "why.host_read"
	NoHostRead  = "why.host_unread"
)

// templates are English; {name} is an argument, a word or a text as its name says.
var templates = map[string]string{
	Cancelled:    "cancelled",
	CancelledBy:  "cancelled by {who}",
	NotAllowed:   "The process that sweeps does not allow it: {error}",
	NoTrust:      "What board controllers are trusted by cannot be read: {error}",
	NoCredential: "The process that sweeps has no credential {credential}.",
	Expired:      "expired",
	EndsAt:       "ends at {at}",
	RetiredBy:    "retired by {who}",
	Incident:     "incident {incident}",
	Closed:       "incident {incident} has closed",
	Blamed:       "incident {incident}: {fault} on {part}",
	Workflow:     "workflow {workflow}",
	WorkflowSo:   "workflow {workflow}: {why}",
	On:           "{server}: {why}",
	Status:       "{status}",
	StatusSo:     "{status}: {why}",
	NotCleaned:   "not cleaned after allocation {allocation}",
	Quarantined:  "in quarantine until somebody gives it back: {why}",
	Waits:        "waits: {why}",
	HasWorkflow:  "another workflow has {server}",
	KeepsConfig:  "version {version} of its configuration",
	UndoConfig:   "back from version {version} of its configuration",
	NotGiven:     "{server} cannot be given: {why}",
	CannotMove:   "a {of} that is {from} cannot become {to}; it may become {legal}",

	IsGone:    "it has left the inventory",
	IsUnready: "it is not ready",
	IsHeld:    "it is held back",
	IsRepair:  "it is under repair",
	IsTaken:   "it is taken for a part of that time",
	HasNoFree: "a GPU of it is not available",
	HasNoGPU:  "it does not have that GPU",
	Repair:    "{kind} of {server}: {state}. {why}",

	IsUnclean: "what it was used for before is not cleaned yet",
	IsBare:    "it was wiped and has no system; it is ready to be installed, for an allocation that names a template",

	Step:      "{step}: {why}",
	NoDriver:  "no driver does {step}",
	TooLong:   "not done within {age}",
	TooLongSo: "not done within {age}: {why}",

	Asked:     "control is asked for it",
	NotAsked:  "ask control for {step}: {error}",
	Looks:     "control looks at it",
	DoesNot:   "control does nothing in mode {mode}: {why}",
	Proposes:  "it only proposes",
	ActionSo:  "{state}: {why}",
	SaysNot:   "control does not say why",
	WorksOn:   "control works on it",
	ActionIs:  "{state}",
	Well:      "no open incident is about it",
	Runs:      "{names} still runs",
	Idle:      "nothing runs on it",
	Blind:     "this process sees no telemetry; run the role allocate where the role process runs",
	ReadError: "read telemetry of {server}: {error}",
	Unread:    "nobody has read {names} since the step began",
	Read:      "{n} GPUs were read since {at}",
	ReadParts: "{n} GPUs and {others} other parts were read since {at}",
	NoReader:  "{why}; nobody reads {names}",
	And:       "{names} and {n} more",
	List:      "{first}, {second}",

	ModeHolds:   "control is in mode {mode}, and does nothing for {step}",
	NoBaseline:  "there is no baseline of firmware for the model {words}: nothing is compared",
	NoBoard:     "the inventory has no board controller of {server}",
	BoardUnread: "nobody has read its board controller since the step began",
	AsSeen:      "its board controller was read since {at}, and nothing that was seen contradicts its {n} GPUs and {others} other parts",
	Differs:     "the inventory is not what was seen: {names}",
	DiffersIn:   "{field} of {part} is {now} in the inventory, and {source} says {words}",
	NotThere:    "{source} sees {words}, which the inventory does not have",
	CountsAre:   "{source} saw {n} GPUs, and the inventory has {others}",
	Lacks:       "its hardware record lacks {words}",
	HostRead:    "its system has read {n} GPUs since {at}",
	NoHostRead:  "its system has not read {names} since the step began",
}
