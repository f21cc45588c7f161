// Package messages holds the sentences of actions and of the checks before them:
// a message id and its English template. The user interface renders the same ids in
// its own languages; a test there holds its table against [All].
package messages

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"auspex/schemas"
)

// Args are the arguments of a sentence; one may be a sentence itself.
type Args = map[string]any

// Ids of the states and outcomes of an action.
const (
	ForPerson      = "step.for_person"
	ForPersonAfter = "step.for_person_after"
	ForPersonTold  = "step.for_person_told"
	ResolvedBy     = "step.resolved_by"
	ResolvedSo     = "step.resolved_so"

	ForPersonAfterTold = "step.for_person_after_told"

	ObservedOnly   = "step.observed_only"
	Decided        = "step.decided"
	Sent           = "step.sent"
	SentUnanswered = "step.sent_unanswered"
	Resumed        = "step.resumed"
	WaitsApproval  = "step.waits_approval"
	WaitsApprovals = "step.waits_approvals"
	ApprovedBy     = "step.approved_by"
	Overridden     = "step.overridden"
	Progress       = "step.progress"
	Listens        = "step.listens"
	Held           = "step.held"
	CancelledBy    = "step.cancelled_by"
	EndedBy        = "step.ended_by"
	CannotEnd      = "step.cannot_end"
	CauseGone      = "step.cause_gone"
	NotForetold    = "step.not_foretold"
	FailedBefore   = "step.failed_before"
	OtherCause     = "step.other_cause"
	IncidentClosed = "step.incident_closed"
	GivenBack      = "step.given_back"
	NoDriver       = "step.no_driver"
	NoReader       = "step.cannot_look"
	NotOurs        = "step.not_ours"
	KeptOut        = "step.kept_out"
	RepairKeeps    = "step.repair_keeps"
	Skipped        = "step.skipped"
	Tried          = "step.tried"
	NobodyCame     = "step.nobody_came"
	NoEffect       = "step.no_effect"
	OutcomeUnknown = "step.outcome_unknown"
	NothingSeen    = "step.nothing_seen"
	PeerError      = "step.peer_error"

	// Limits of what servers draw.
	WouldCap      = "step.would_cap"
	CapIs         = "step.cap_is"
	CapAbove      = "step.cap_above"
	CapUnset      = "step.cap_unset"
	WouldUncap    = "step.would_uncap"
	WouldUncapAll = "step.would_uncap_all"
	CapNone       = "step.cap_none"
	CapGone       = "step.cap_gone"
	CapOther      = "step.cap_other"
	CapStill      = "step.cap_still"
	WouldCapAll   = "step.would_cap_all"
	FeedCapped    = "step.feed_capped"
	FeedNotCapped = "step.feed_not_capped"
	FeedFreed     = "step.feed_freed"
	FeedNotFreed  = "step.feed_not_freed"
	FeedReset     = "step.feed_reset"
	FeedSlipped   = "step.feed_slipped"
	FeedTrips     = "check.feed_trips"
	FeedHolds     = "check.feed_holds"
	FeedUnrated   = "check.feed_unrated"
	FeedUnread    = "check.feed_unread"
	FeedAlone     = "check.feed_alone"
	FeedLost      = "check.feed_lost"
	FeedBack      = "check.feed_back"

	WouldDrain   = "step.would_drain"
	DrainedSo    = "step.drained_already"
	WouldReturn  = "step.would_return"
	SchedulerHas = "step.scheduler_says"

	WouldCycleOn  = "step.would_cycle_on"
	WouldCycleOff = "step.would_cycle_off"
	PowerOff      = "step.power_off"
	NoReset       = "step.no_reset"
	PowerBack     = "step.power_back"
	ResetAt       = "step.reset_at"

	WouldReset     = "step.would_reset"
	WouldResetHeld = "step.would_reset_held"
	WouldReboot    = "step.would_reboot"
	// WouldRebootSlurm has a scheduler do it.
	WouldRebootSlurm = "step.would_reboot_slurm"
	AgentUnaware     = "step.agent_unaware"
	AgentAtIt        = "step.agent_at_it"
	AgentSays        = "step.agent_says"
	ResetUnread      = "step.reset_unread"
	ResetRead        = "step.reset_read"
	DriverWants      = "step.driver_wants"
	Rebooted         = "step.rebooted"

	WouldReload     = "step.would_reload"
	WouldReloadHeld = "step.would_reload_held"
	ReloadUnread    = "step.reload_unread"
	Reloaded        = "step.reloaded"

	WouldValidate    = "step.would_validate"
	ValidationPassed = "step.validation_passed"
	ValidationFailed = "step.validation_failed"

	NoPolicy    = "no_step.no_policy"
	LadderEnded = "no_step.ladder_ended"
	Unsure      = "no_step.unsure"
	Settling    = "no_step.settling"
	OtherLadder = "no_step.other_ladder"
	Rests       = "no_step.rests"
	PlanGoesOn  = "no_step.goes_on"
	PlanEnds    = "no_step.ends"
	PlanFar     = "no_step.far"

	Asked        = "request.asked"
	ObservesOnly = "request.observes_only"
	TooOld       = "request.too_old"
	NoServer     = "request.no_server"
	NoPart       = "request.no_part"
	BadWith      = "request.bad_with"
	BusyRepair   = "request.busy_repair"
	BusyRequest  = "request.busy_request"

	WouldPowerOn  = "step.would_power_on"
	WouldPowerOff = "step.would_power_off"
	WouldForceOff = "step.would_force_off"
	WouldNMI      = "step.would_nmi"
	WouldBoot     = "step.would_boot"
	PowerIs       = "step.power_is"
	BootIs        = "step.boot_is"
	NMITaken      = "step.nmi_taken"

	WouldResetBMC  = "step.would_reset_bmc"
	BMCAnswers     = "step.bmc_answers"
	BMCRestarted   = "step.bmc_restarted"
	BMCUnproven    = "step.bmc_unproven"
	HostWentDown   = "step.host_went_down"
	WouldSetBIOS   = "step.would_set_bios"
	WouldApplyBIOS = "step.would_apply_bios"
	BIOSPending    = "step.bios_pending"
	BIOSInForce    = "step.bios_in_force"
	BIOSDiffers    = "step.bios_differs"
	BIOSRefused    = "step.bios_refused"
	WouldRestart   = "step.would_restart"

	WouldUpdate     = "step.would_update"
	VersionIs       = "step.version_is"
	UpdateAt        = "step.update_at"
	UpdateRuns      = "step.update_runs"
	UpdateFailed    = "step.update_failed"
	UpdateUnshown   = "step.update_unshown"
	UpdateForgotten = "step.update_forgotten"

	WouldInstall     = "step.would_install"
	WouldInstallBare = "step.would_install_bare"
	InstallNone      = "step.install_none"
	OfInstall        = "step.of_install" // the subject of those that follow
	OfWipe           = "step.of_wipe"
	InstallWaits     = "step.install_waits"
	InstallHeld      = "step.install_held"
	InstallAt        = "step.install_at"
	InstallSays      = "step.install_says"
	InstallDone      = "step.install_done"
	WouldWipe        = "step.would_wipe"
	WipeProven       = "step.wipe_proven"
	WipeUnproven     = "step.wipe_unproven"
	WipeUntold       = "step.wipe_untold"
	InstallFailed    = "step.install_failed"
	InstallLate      = "step.install_late"
	WouldRufio       = "step.would_rufio"
	RufioNone        = "step.rufio_none"
	RufioAt          = "step.rufio_at"
	RufioGone        = "step.rufio_gone"
	RufioFailed      = "step.rufio_failed"
	RufioUnread      = "step.rufio_unread"
	RufioDone        = "step.rufio_done"
	RufioBoot        = "step.rufio_boot"
	InstallAway      = "step.install_away"

	WouldResetNetwork = "step.would_reset_network"
	NetworkReset      = "step.network_reset"
	NetworkDiffers    = "step.network_differs"

	WouldACCycle = "step.would_ac_cycle"
	ACAway       = "step.ac_away"
	ACBack       = "step.ac_back"
	ACUnseen     = "step.ac_unseen"

	WouldSet   = "step.would_set"
	WouldSetNo = "step.would_set_nothing"
	SetUnread  = "step.set_unread"
	SetRead    = "step.set_read"

	ConfigPending    = "config.pending"
	ConfigAsked      = "config.asked"
	ConfigUndoes     = "config.undoes"
	ConfigInForce    = "config.in_force"
	ConfigAwaits     = "config.awaits"
	ConfigDrifted    = "config.drifted"
	ConfigSuspect    = "config.suspect"
	ConfigRefused    = "config.refused"
	ConfigFailed     = "config.attempt_failed"
	ConfigRolledBack = "config.rolled_back"
	ConfigHeld       = "config.held"
	ConfigOften      = "config.often"
	ConfigUnread     = "config.unread"
	ConfigUnseen     = "config.unseen"
	ConfigCannot     = "config.cannot"
	ConfigMode       = "config.mode"

	Both           = "step.both"
	EffectSeen     = "step.effect_seen"
	Watched        = "step.watched"
	NotCured       = "step.not_cured"
	PartSilent     = "step.part_silent"
	SourceSilent   = "step.source_silent"
	SilentAgain    = "step.silent_again"
	StillRaised    = "step.still_raised"
	SignSince      = "step.sign_since"
	StandsStill    = "step.stands_still"
	NeverSilent    = "step.never_silent"
	RestartUnheard = "step.restart_unheard"
	NotRestarted   = "step.not_restarted"
	WrongPace      = "step.wrong_pace"
	NotLong        = "step.not_long"
	Lives          = "step.lives"
)

// Ids of checks.
const (
	Confidence   = "check.confidence"
	EvidenceAge  = "check.evidence_age"
	RungsDone    = "check.rungs_done"
	RungsPlanned = "check.rungs_planned"
	FleetBudget  = "check.fleet_budget"
	RackBudget   = "check.rack_budget"
	GroupBudget  = "check.group_budget"
	GroupRate    = "check.group_rate"
	GroupKeeps   = "check.group_keeps"
	GroupFree    = "check.group_free"
	HourlyRate   = "check.hourly_rate"
	CoolDown     = "check.cool_down"
	FirstSuch    = "check.first_such"
	Breaker      = "check.breaker"
	LeaseOurs    = "check.lease_ours"
	LeaseOthers  = "check.lease_others"
	SeenBy       = "check.seen_by"
	SeenByNobody = "check.seen_by_nobody"
	VouchedFor   = "check.vouched_for"
	NobodyHas    = "check.nobody_has"
	OwnerAsked   = "check.owner_asked"
	OwnerAgreed  = "check.owner_agreed"
	InWindow     = "check.in_window"
	NoWindow     = "check.no_window"
	Frozen       = "check.frozen"
	NoFreeze     = "check.no_freeze"

	FreezeOverridden = "check.freeze_overridden"

	QuorumMet     = "check.quorum_met"
	QuorumShort   = "check.quorum_short"
	QuorumNone    = "check.quorum_none"
	QuorumVouched = "check.quorum_vouched"
	ModeHolds     = "check.mode_holds"
	Probability   = "check.probability"
	NotIdle       = "check.not_idle"
	Averted       = "check.averted"
	StillForetold = "check.still_foretold"
	JobsNone      = "check.jobs_none"
	JobsRun       = "check.jobs_run"
	JobsForced    = "check.jobs_forced"
	NoUpdate      = "check.no_update"
	UpdateHolds   = "check.update_holds"
	UpdateUnread  = "check.update_unread"
)

// templates are English; {name} is an argument. {age} is a duration in words;
// beside it the argument seconds has it as a number.
var templates = map[string]string{
	ForPerson:      "for a person",
	ForPersonAfter: "for a person: {kind} did not work; {server} stays out of the pool",
	ForPersonTold:  "for a person; told to {who}",
	ResolvedBy:     "{who} says that it is done",
	ResolvedSo:     "{who} says that it is done: {words}",

	ForPersonAfterTold: "for a person: {kind} did not work; {server} stays out of the pool; told to {who}",

	ObservedOnly:   "observed only",
	Decided:        "decided",
	Sent:           "sent",
	SentUnanswered: "sent; the answer is unknown: {error}",
	Resumed:        "resumed after a restart; not sent again",
	WaitsApproval:  "waits for approval",
	WaitsApprovals: "waits for approval: {left} of {of} persons must still approve",
	ApprovedBy:     "{who} approved, {n} of {of}",
	Overridden:     "{who} overrode the change freeze: {why}",
	Progress:       "sent at {time}; since then: {saw}",
	Listens:        "waits until {server} is heard, so that its silence is noticed",
	Held:           "held by {rail}: {why}",
	CancelledBy:    "cancelled by {who}",
	EndedBy:        "cancelled by {who}, and ended there; what it had done until then stays: {saw}",
	CannotEnd:      "cancelled by {who}, and it cannot be ended yet: {error}",
	CauseGone:      "the incident closed, or names another cause now",
	NotForetold:    "the failure is not foretold any more, or has come",
	FailedBefore:   "something on {server} has failed: that is repaired first",
	OtherCause:     "the incident names another cause now",
	IncidentClosed: "the incident closed",
	GivenBack:      "somebody gave {server} back",
	NoDriver:       "cannot: no driver for {kind}",
	NoReader:       "no driver can read the state back",
	KeptOut:        "out of the pool as {who} asked, and stays so until its return is asked for",
	RepairKeeps:    "the repair for incident {incident} failed, and keeps it out of the pool",
	Skipped:        "skipped: {why}",

	NoPolicy:    "no policy is for {fault}",
	PlanGoesOn:  "a ladder of policy {policy} stands on {server} and goes on as it was opened",
	PlanEnds:    "a ladder of policy {policy} stands on {server}, and these policies no longer have it: it would be cancelled",
	PlanFar:     "policy {policy} waits until {fault} is nearer",
	LadderEnded: "the ladder of policy {policy} has ended: {how}",
	Unsure:      "the cause is {value} % sure, and policy {policy} asks for {limit} %",
	Settling:    "policy {policy} waits until the cause has stood for {age}; it stands since {since}",
	OtherLadder: "another ladder has {server}, for incident {incident}",
	Rests:       "a ladder failed on {server} within the last hour; policy {policy} leaves the server alone",

	NotOurs:        "stays out of the pool: Auspex did not take it out",
	Tried:          "dry run: {what}",
	NobodyCame:     "not approved, or a check did not hold, within {age}",
	NoEffect:       "no effect within {age}: {saw}",
	OutcomeUnknown: "the outcome is unknown: {saw}",
	NothingSeen:    "no effect was observed",
	PeerError:      "{error}",

	WouldDrain:   "would drain {server}; it is {states} now",
	DrainedSo:    "{server} is drained already: {reason}",
	WouldReturn:  "would return {server} to the pool once the repair is verified",
	SchedulerHas: "the scheduler reports {states}",

	WouldCycleOn:  "would power-cycle {server} through its BMC; power is on now",
	WouldCycleOff: "would power-cycle {server} through its BMC; power is off now",
	PowerOff:      "power is off",
	NoReset:       "power is on and no reset was observed since",
	PowerBack:     "power went off and came back",
	ResetAt:       "the BMC reports a reset at {time}",

	WouldReset:     "would reset {gpus} of {server} through its agent; no process has them open now",
	WouldResetHeld: "would reset {gpus} of {server} through its agent; now {held}, and that must end before",
	WouldReboot:    "would reboot {server} through its agent",

	WouldRebootSlurm: "would have Slurm reboot {server}; it is {states} now",

	AgentUnaware: "the agent of {server} knows nothing of this step",
	AgentAtIt:    "the agent of {server} is at it",
	AgentSays:    "the agent of {server} says: {words}",
	ResetUnread:  "{gpu} of {server} was reset; the agent has not read it since",
	ResetRead:    "{gpu} of {server} was reset, and the agent reads it again",
	DriverWants:  "it was done, and the driver of {server} still asks for more: {wants}",
	Rebooted:     "{server} has started anew",

	WouldReload:     "would load the driver of {server} anew through its agent; no process has {gpus} open now",
	WouldReloadHeld: "would load the driver of {server} anew through its agent; now {held}, and that must end before",
	ReloadUnread:    "the driver of {server} was loaded anew; the agent has not read {gpus} since",
	Reloaded:        "the driver of {server} was loaded anew, and the agent reads {gpus}",

	WouldValidate:    "would test {gpus} of {server} at level {level} through its agent",
	ValidationPassed: "{gpus} of {server} passed {passed} tests at level {level}; {warned} warn, {skipped} were skipped",
	ValidationFailed: "the validation of {gpus} of {server} found: {findings}",

	Asked:        "{who} asked for {kind} ({reason})",
	ObservesOnly: "control only observes",
	TooOld:       "it was asked for {age} ago and not taken up in time; ask again",
	NoServer:     "{server} is no server of the inventory",
	NoPart:       "{part} is no part of {server}",
	BadWith:      "the parameters of {kind} cannot be used: {error}",
	BusyRepair:   "the repair for incident {incident} is under way on {server}",
	BusyRequest:  "{kind}, which {who} asked for, is under way on {server}",

	WouldPowerOn:  "would power {server} on through its BMC; power is {power} now",
	WouldPowerOff: "would have {server} shut down and powered off through its BMC; power is {power} now",
	WouldForceOff: "would take the power from {server} at once through its BMC; power is {power} now",
	WouldNMI:      "would send {server} a diagnostic interrupt through its BMC; power is {power} now",
	WouldBoot:     "would set the next boot of {server} to {target} through its BMC; it is {now} now",
	PowerIs:       "the BMC reports that power is {power}",
	BootIs:        "the BMC has {now} for the next boot",
	NMITaken:      "the BMC took the interrupt and reports no reset since; what the host made of it, its console shows",

	WouldResetBMC:  "would restart the BMC of {server}; power is {power} now, and stays so",
	BMCAnswers:     "the BMC of {server} answers and has not started anew",
	BMCRestarted:   "the BMC of {server} has started anew ({sign}); power is {power}, as before",
	BMCUnproven:    "the BMC of {server} answers, and shows nothing by which a restart could be known",
	HostWentDown:   "{server} went down with its BMC: {sign}",
	WouldSetBIOS:   "would set BIOS attributes of {server} for its next reset: {changes}",
	WouldApplyBIOS: "would set BIOS attributes of {server} and restart it: {changes}",
	BIOSPending:    "the BIOS of {server} has, pending until its next reset: {attributes}",
	BIOSInForce:    "the BIOS of {server} has {attributes}",
	BIOSDiffers:    "the BIOS of {server} is not as asked: {differences}",
	BIOSRefused:    "{server} has started anew, and its BIOS is not as asked: {differences}",
	WouldRestart:   "would have {server} restart its system through its BMC; power is {power} now",

	WouldUpdate:     "would update {component} of {server} from version {now} to {version} through its BMC",
	VersionIs:       "{component} of {server} has version {version}",
	UpdateAt:        "the update of {component} of {server} is at {percent} % ({phase})",
	UpdateRuns:      "the update of {component} of {server} is under way ({phase})",
	UpdateFailed:    "the update of {component} of {server} ended as {phase}, and its version is {version}: {words}",
	UpdateUnshown:   "the update of {component} of {server} is completed, and its version is {version}",
	UpdateForgotten: "the BMC of {server} knows no update under way, and {component} has version {version}",

	WouldInstall:     "would install {server} with {template} through Tinkerbell, in {n} steps ({steps}), and start it from the network for that",
	WouldInstallBare: "would install {server} with {template} through Tinkerbell, in {n} steps ({steps}), once the site starts it from the network",
	InstallNone:      "Tinkerbell has no workflow of this step for {server}",
	OfInstall:        "the installation of {server}",
	OfWipe:           "the wipe of {server}",
	InstallWaits:     "{what} is {stage}; no step has begun",
	InstallHeld:      "{what} is {stage}, and no step has begun: {words}",
	InstallAt:        "{what} is at step {n} of {of}, {action} ({phase})",
	InstallSays:      "{what} is at step {n} of {of}, {action} ({phase}): {words}",
	InstallDone:      "all {of} steps of {what} succeeded, and it no longer starts from the network",
	WouldWipe:        "would wipe {server} with {template} through Tinkerbell, in {n} steps ({steps}), and begin no other until each of its drives is proven to hold nothing",
	WipeProven:       "all {n} drives of {server} are proven to hold nothing: {findings}",
	WipeUnproven:     "{server} is not proven to hold nothing: {findings}",
	WipeUntold:       "{server} is not proven to hold nothing: its workflow has told nothing of its drives. {saw}",
	InstallFailed:    "{what} ended as {stage} at step {n} of {of}, {action}, and it no longer starts from the network: {words}",
	InstallLate:      "{what} had not ended within {age} and was taken away, and it no longer starts from the network: {saw}",
	WouldRufio:       "would give Rufio a job for machine {machine} of {server}: {acts}; it read power as {power} last",
	RufioNone:        "Rufio has no job {job} yet",
	RufioAt:          "the job {job} of Rufio has not ended",
	RufioGone:        "Rufio has no job {job}: it never came to be, or was deleted; what became of it is not known",
	RufioFailed:      "the job {job} of Rufio failed: {words}; Rufio reads that power is {power}",
	RufioUnread:      "the job {job} of Rufio has ended; Rufio has not read power since",
	RufioDone:        "the job {job} of Rufio has ended, and Rufio reads that power is {power}",
	RufioBoot:        "the job {job} of Rufio has ended; Rufio does not read back what {server} starts from next",
	InstallAway:      "the Kubernetes API cannot be followed since {time} ({error}); before that: {saw}",

	WouldResetNetwork: "would set back what Tinkerbell has of {server} and what it starts from next: {changes}; left to others: {left}",
	NetworkReset:      "what Tinkerbell has of {server} and what it starts from next read as the inventory says; left to others: {left}",
	NetworkDiffers:    "{server} is not set back on the network yet: {changes}; left to others: {left}",

	WouldACCycle: "would take the mains from {server} at {outlets} and give it back",
	ACAway:       "{outlets} of {server} are {states}",
	ACBack:       "the mains of {server} was away and is back at {outlets}; its BMC has started anew and its power is {power}",
	ACUnseen:     "the mains of {server} is on at {outlets}; nothing shows that it was away",

	WouldSet:   "would set on {server} through its agent: {changes}",
	WouldSetNo: "{gpus} of {server} are set so already: {settings}",
	SetUnread:  "the agent of {server} has not read its GPUs as they should be: {changes}",
	SetRead:    "the agent of {server} reads {gpus} as they should be: {settings}",

	ConfigPending:    "version {version} has not been applied yet: {settings}",
	ConfigAsked:      "control is asked to set version {version}, attempt {n} of {of}",
	ConfigUndoes:     "version {version} was not taken ({why}); control is asked to set what was in force before",
	ConfigInForce:    "version {version} is in force",
	ConfigAwaits:     "{settings} are set and in force once {server} has started anew",
	ConfigDrifted:    "it is no longer so: {changes}",
	ConfigSuspect:    "it was read otherwise once, and is read again before anything is said or done: {changes}",
	ConfigRefused:    "control did not do it: {why}",
	ConfigFailed:     "attempt {n} of {of} failed: {why}",
	ConfigRolledBack: "version {version} was not taken ({why}); what was in force before is so again. It is tried no more until somebody applies it or stores another version",
	ConfigHeld:       "{n} attempts within a day did not help ({why}); it is tried no more until somebody applies it or stores another version",
	ConfigOften:      "it was put in force {n} times within a day and did not stay so",
	ConfigUnread:     "it cannot be read: {error}",
	ConfigUnseen:     "nobody tells {settings}",
	ConfigCannot:     "control cannot set it: {error}",
	ConfigMode:       "control is in mode {mode}, and control.configuration.enforce is {enforce}: it is set when somebody applies it ({changes})",

	Both:           "{first}; {second}",
	EffectSeen:     "{saw}; {part} must now be read for {age} without a sign of the fault",
	Watched:        "the effect was seen at {time}; since then: {saw}",
	NotCured:       "the fault is still there: {saw}",
	PartSilent:     "{collector} reads other parts of {server}, but not {part}",
	SourceSilent:   "the source that reported the fault of {part} has not read it since",
	SilentAgain:    "{collector} read {part}, then lost it again",
	StillRaised:    "{type} is still raised on {part}",
	SignSince:      "{part} reported {type} {code} at {time}, after the repair",
	NotLong:        "{collector} has read {part} for only {age} without a sign of the fault",
	StandsStill:    "{collector} repeats the same values of {part}, which does not show that it works",
	NeverSilent:    "{collector} never fell silent while {server} restarted: it repeats what was recorded",
	RestartUnheard: "control did not listen while {server} restarted, and no energy counter shows that {collector} reads {part} since",
	NotRestarted:   "{collector} reads of {part} an energy counter that did not restart with {server}: it repeats what was recorded",
	WrongPace:      "{collector} reads {part}, whose time does not pass as ours does: it repeats what was recorded",
	Lives:          "{collector} has read {part} for {age} without a sign of the fault",

	Confidence:   "the confidence is {value} %; the policy requires {limit} %",
	EvidenceAge:  "the evidence is {age} old",
	RungsDone:    "{done} of {of} earlier rungs are verified",
	RungsPlanned: "{done} of {of} earlier rungs are planned",
	FleetBudget:  "Auspex would hold {held} servers out of the pool; the limit is {limit}",
	RackBudget:   "Auspex would hold {held} servers of {rack} out of the pool; the limit is {limit}",
	GroupBudget:  "Auspex would hold {held} servers of {scope} {name} out of the pool; the limit is {limit}",
	GroupRate:    "{n} steps of this kind in {scope} {name} in the last hour",
	GroupKeeps:   "{stay} servers of {scope} {name} would stay in service; {limit} must",
	GroupFree:    "{stay} servers of {scope} {name} would be free; {limit} must be",
	HourlyRate:   "{n} steps of this kind in the last hour",
	CoolDown:     "{age} since the last step of this kind on {server}",
	FirstSuch:    "no earlier step of this kind on {server}",
	Breaker:      "{n} ladders with destructive steps began within {age}",
	LeaseOurs:    "Auspex holds the lease of {server}",
	LeaseOthers:  "another holder has the lease of {server}",
	SeenBy:       "the fault of {part} was seen by our own collectors ({source})",
	SeenByNobody: "only posted alerts speak against {part}; none of our collectors saw its fault, so a person must approve",
	InWindow:     "{server} is in maintenance window {window} by {by} until {until}; Auspex repairs nothing there meanwhile",
	NoWindow:     "no maintenance window is open over {server}",
	Frozen:       "{by} froze {server} until {until} ({reason}); nothing that ends what runs there starts before, unless an admin overrides it",
	NoFreeze:     "no change freeze holds for {server}",

	FreezeOverridden: "{by} froze {server} until {until} ({reason}); {who} overrode it: {why}",

	QuorumMet:     "{n} of {need} views saw the fault of {part}: {sources}",
	QuorumShort:   "only {n} of {need} views saw the fault of {part}: {sources}; before its power is touched another must agree, or a person approve",
	QuorumNone:    "no view tells of the fault of {part} by itself; before its power is touched {need} must, or a person approve",
	QuorumVouched: "{n} of {need} views saw the fault of {part}; {who} approved the step all the same",
	ModeHolds:     "the mode for {server} is {mode} now, in which nothing is sent",
	Probability:   "the failure is {value} % probable; the policy requires {limit} %",
	NotIdle:       "{n} jobs run on {server}: {jobs}; it is taken out when they have ended",
	Averted:       "nothing is foretold of {part} any more",
	StillForetold: "{part} is still foretold to fail, with {value} %",
	JobsNone:      "no job of the scheduler runs on {server}",
	JobsRun:       "{n} jobs run on {server}: {jobs}; they end only where force is asked for",
	JobsForced:    "{n} jobs on {server} end with it, as was asked for: {jobs}",
	NoUpdate:      "no update of firmware is under way on {server}",
	UpdateHolds:   "an update of firmware is under way on {server} ({task}); its power is left alone until it has ended",
	UpdateUnread:  "an update of firmware began on {server} and has not been seen to end, and its BMC does not answer: {error}",
	NobodyHas:     "{server} is given to nobody",
	OwnerAsked:    "{user} has {server}, so they or an admin must approve",
	OwnerAgreed:   "{user} has {server}; {who} approved the step",
	VouchedFor:    "none of our collectors saw the fault of {part}; {who} approved the step all the same",

	WouldCap:      "would limit {server} to {watts} W through {way}; it draws {draw} now, and its limit is {limit}",
	CapIs:         "{server} is limited to {limit} through {way} and draws {draw}",
	CapAbove:      "{server} is limited to {limit} through {way} and still draws {draw}",
	CapUnset:      "the limit of {server} through {way} is {limit}, not {watts} W",
	WouldUncap:    "would take the limit of {server} from {watts} W back to {before} through {way}",
	WouldUncapAll: "would take the limits of {n} servers back: {limits}",
	CapNone:       "Auspex has set no power limit for {server} that is still there",
	CapGone:       "the limit of {server} through {way} is {limit} again, as before",
	CapOther:      "the limit of {server} through {way} is {limit}, which is not ours; it is left so",
	CapStill:      "the limit of {server} through {way} is still {limit}",
	WouldCapAll:   "would limit {n} servers while {feed} gives no power: {limits}",
	FeedCapped:    "{n} servers have their limits and draw no more: {limits}",
	FeedNotCapped: "{done} of {n} servers have their limits; {left}",
	FeedFreed:     "the limits of {n} servers are no longer ours",
	FeedNotFreed:  "{done} of {n} servers have their limits back; {left}",
	FeedReset:     "limits that were gone are set again: {limits}",
	FeedSlipped:   "limits that are no longer in force: {left}",
	FeedTrips:     "{unit} carries {load} W and is rated for {rating} W; its {n} servers must come down to {percent} % ({unread} could not be read): {limits}",
	FeedHolds:     "{unit} carries {load} W and is rated for {rating} W; it holds without limits ({unread} of {n} servers could not be read)",
	FeedUnrated:   "the inventory gives no rating_watts of {unit}, so that nobody can say whether it would trip",
	FeedUnread:    "nobody reads what the {n} servers on {unit} draw: {errors}",
	FeedAlone:     "no other PDU feeds the servers of {unit}",
	FeedLost:      "{n} power supplies have no input, as our own collectors tell ({source})",
	FeedBack:      "no power supply is without input any more, for {age}",
}

// All returns the ids of all messages, sorted.
func All() []string { return slices.Sorted(maps.Keys(templates)) }

// Template returns the English template of a message, or "".
func Template(id string) string { return templates[id] }

// New makes a sentence.
func New(id string, args Args) schemas.Sentence { return schemas.Sentence{ID: id, Args: args} }

// Age returns the two arguments of a duration.
func Age(d time.Duration) Args {
	return Args{"age": d.Round(time.Second).String(), "seconds": d.Round(time.Second).Seconds()}
}

// Error says what a peer answered, in its own words.
func Error(err error) schemas.Sentence { return New(PeerError, Args{"error": err.Error()}) }

// Text renders a sentence in English. The zero sentence gives "", an unknown id
// itself, and an argument that is missing keeps its braces.
func Text(s schemas.Sentence) string {
	t, ok := templates[s.ID]
	if !ok {
		return s.ID
	}
	var b strings.Builder
	for {
		before, rest, opens := strings.Cut(t, "{")
		name, after, closes := strings.Cut(rest, "}")
		if !opens || !closes {
			b.WriteString(t)
			return b.String()
		}
		b.WriteString(before)
		switch v, given := s.Args[name]; {
		case given:
			b.WriteString(value(v))
			t = after
		default: // what follows the brace may be one
			b.WriteByte('{')
			t = rest
		}
	}
}

// value is an argument as a sentence has it.
func value(v any) string {
	switch v := v.(type) {
	case string:
		return v
	case int:
		return strconv.Itoa(v)
	case schemas.Sentence:
		return Text(v)
	case Args: // a sentence that was stored
		id, _ := v["id"].(string)
		args, _ := v["args"].(Args)
		return Text(New(id, args))
	}
	return fmt.Sprint(v)
}
