// English. Keys are the same as in zh.js.
const n = (count, one, many) => (count === 1 ? `1 ${one}` : `${count.toLocaleString('en-GB')} ${many}`);

export const en = {
  // shell
  'nav.fleet': 'Fleet', 'nav.incidents': 'Incidents', 'nav.predictions': 'Predictions', 'nav.actions': 'Actions', 'nav.explore': 'Explore', 'nav.more': 'More', 'nav.label': 'Pages', 'nav.skip': 'Skip to content',
  'shell.find': 'Search or run', 'shell.live': 'Live', 'shell.connecting': 'Connecting', 'shell.lost': 'No contact',
  'shell.lost_text': ({ for: age }) => `No contact with the server for ${age}. The page shows the last known state. Buttons that change something are off until contact returns.`,
  'shell.stale': 'Could not refresh this part. It shows the last known state.',
  'shell.simulated': 'Simulated fleet', 'shell.theme': 'Light or dark', 'shell.language': 'Language', 'shell.keys': 'Keyboard', 
  'mode.observe': 'Observe', 'mode.dry-run': 'Dry run', 'mode.approve': 'Approve', 'mode.enforce': 'Enforce', 'mode.label': 'Mode', 'mode.observe.tip': 'Auspex proposes steps and sends nothing.', 'mode.dry-run.tip': 'Auspex plans each step against the real machines and sends nothing.', 'mode.approve.tip': 'Auspex proposes each step; a person approves it.', 'mode.enforce.tip': 'Auspex repairs by itself, within its budgets.',
  'unit.d': 'd', 'unit.h': 'h', 'unit.min': 'min', 'unit.s': 's',
  'in': 'in {age}', 'all': 'All', 'more': '{n} more', 'close': 'Close',
  'load.wait': 'Loading', 'load.error': 'Could not load', 'load.retry': 'Try again', 'load.denied': 'You have no access to this', 'load.denied_hint': 'Your role cannot read it. An admin can grant access.',
  'missing.title': 'Page not found', 'missing.hint': 'Press / to find a server, an incident or a command.',

  // states
  'state.ok': 'Healthy', 'state.warning': 'Warning', 'state.critical': 'Critical', 'state.affected': 'Affected', 'state.predicted': 'Fails next', 'state.acting': 'In repair', 'state.out': 'Out', 'state.unknown': 'No contact',
  'severity.info': 'Info', 'severity.warning': 'Warning', 'severity.error': 'Error', 'severity.critical': 'Critical',

  // fleet
  'fleet.calm': 'Nothing is wrong.', 'fleet.unwatched': 'Nothing is watched yet.',
  'fleet.comma': ', ', 'fleet.headline': ({ open }) => `${n(open, 'incident', 'incidents')} open`, 'fleet.waits': ({ n: k }) => (k === 0 ? 'nothing waits for you' : k === 1 ? '1 action waits for you' : `${k} actions wait for you`),
  'fleet.sub': ({ servers, gpus, racks }) => `${n(servers, 'server', 'servers')}, ${n(gpus, 'GPU', 'GPUs')}, ${n(racks, 'rack', 'racks')}`,
  'fleet.healthy': 'GPUs healthy', 'fleet.used': 'in use', 'fleet.free': 'free', 'fleet.out': 'out', 'fleet.power': 'power', 'fleet.ingest': 'samples/s',
  'fleet.wrong': 'Wrong now', 'fleet.next': 'Fails next', 'fleet.repair': 'In repair', 'fleet.map': 'Fleet map', 'fleet.map_label': 'Map of the fleet. Arrow keys move, Enter opens, n goes to the next problem.',
  'fleet.storm': 'Last {age}', 'fleet.storm_text': ({ alerts, incidents }) => `${n(alerts, 'alert', 'alerts')} became ${n(incidents, 'incident', 'incidents')}`,
  'fleet.empty': 'The inventory has no server yet.', 'fleet.empty_hint': 'Import an inventory with “auspex cmdb import”, or start the simulated fleet with “auspex run --demo”.',
  'fleet.no_incident': 'No open incident.', 'fleet.no_prediction': 'No part is expected to fail soon.',
  'by.health': 'Health', 'by.temp': 'Temperature', 'by.power': 'Power', 'by.load': 'Load', 'by.risk': 'Risk', 'by.job': 'Job', 'by.label': 'Colour by',
  'map.fit': 'Fit', 'map.in': 'Zoom in', 'map.out': 'Zoom out', 'map.table': 'Table', 'map.only': 'Only problems', 'map.server': 'Server', 'map.state': 'State', 'map.job': 'Job', 'map.free': 'free',

  // incident
  'inc.against': 'What speaks against it', 'inc.would_change': 'What would change our mind', 'inc.similar': 'Before', 'inc.cured_by': 'cured by', 'inc.not_cured': 'nothing done by Auspex', 'inc.match.resource': 'same part', 'inc.match.model': 'same model', 'inc.match.fault': 'same fault',
  'inc.title': 'Incidents', 'inc.open': 'Open', 'inc.repair': 'In repair', 'inc.closed': 'Closed', 'inc.merged': 'Merged', 'inc.cause': 'Cause', 'inc.confidence': 'Confidence', 'inc.confidence_tip': 'Of all incidents with this confidence, this share names the right cause.',
  'inc.why': 'Reasons', 'inc.evidence': 'Evidence', 'inc.graph': 'Cause and effect', 'inc.alternatives': 'Other possible causes', 'inc.jobs': 'Affected jobs', 'inc.todo': 'What to do', 'inc.opened': 'Opened', 'inc.lasts': 'Duration', 'inc.servers': 'Servers', 'inc.alerts': 'Alerts', 'inc.n_alerts': ({ n: k }) => n(k, 'alert', 'alerts'),
  'inc.folded': ({ alerts }) => `${n(alerts, 'alert', 'alerts')}, 1 incident`, 'inc.repeat': '(repeats)', 'inc.merged_into': 'Merged into {id}', 'inc.as_text': 'As text', 'inc.axis': 'time since the first alert, logarithmic', 'inc.none': 'No incident matches.', 
  'inc.affects': ({ servers, jobs }) => `${n(servers, 'server', 'servers')}${jobs ? `, ${n(jobs, 'job', 'jobs')}` : ''}`, 'inc.what': 'What happened', 'inc.no_detail': 'The alerts of this incident are no longer stored.', 'inc.fold_line': 'Alerts folded', 'inc.reports_of': '{n} of {of} report', 'inc.quiet': 'silent, as expected',

  // predictions in a sentence
  'predict.falls': ({ part, server, limit, unit, seconds }, f) => `${part} of ${server} falls below ${f.num(limit)} ${unit} in about ${f.dur(seconds)}.`,
  'predict.rises': ({ part, server, limit, unit, seconds }, f) => `${part} of ${server} rises above ${f.num(limit)} ${unit} in about ${f.dur(seconds)}.`,
  'predict.falls_default': ({ part, server, limit, unit, seconds }, f) => `${part} of ${server} falls below ${f.num(limit)} ${unit} (a default: the device gives no limit) in about ${f.dur(seconds)}.`,
  'predict.rises_default': ({ part, server, limit, unit, seconds }, f) => `${part} of ${server} rises above ${f.num(limit)} ${unit} (a default: the device gives no limit) in about ${f.dur(seconds)}.`,
  'predict.below_default': '{part} of {server} fell below {limit} {unit} (a default: the device gives no limit).', 'predict.above_default': '{part} of {server} rose above {limit} {unit} (a default: the device gives no limit).',
  'predict.below': '{part} of {server} fell below {limit} {unit}.', 'predict.above': '{part} of {server} rose above {limit} {unit}.', 'predict.averted': '{part} of {server} moved away from {limit} {unit}.', 'predict.expired': '{part} of {server} no longer moves towards {limit} {unit}.',

  'role.cause': 'cause', 'role.affected': 'effect', 'role.silent': 'silent', 'role.context': 'between',
  'link.powers': 'power', 'link.cools': 'cooling', 'link.network': 'network', 'link.nvlink': 'NVLink', 'link.pcie': 'PCIe', 'link.contains': 'part of', 'link.runs': 'runs on',

  // actions
  'act.headline': ({ n: k, proposed }) => (k > 0 ? `${n(k, 'action waits', 'actions wait')} for you.` : proposed > 0 ? `Nothing waits for you; ${n(proposed, 'step is', 'steps are')} proposed.` : 'Nothing waits for you.'),
  'act.proposed': 'Proposed', 'act.waiting': 'Waits for approval', 'act.approved': 'Approved', 'act.running': 'Running', 'act.verifying': 'Verifying', 'act.done': 'Done', 'act.failed': 'Failed', 'act.unknown': 'Outcome unknown', 'act.cancelled': 'Cancelled', 'act.refused': 'Not proposed', 'act.would.dry-run': 'Dry run: nothing was changed', 'act.would.observe': 'Observed only', 'act.person': 'For a person', 'act.recommended': 'Recommended',
  'act.approve': 'Approve', 'act.cancel': 'Cancel', 'act.dry_run': 'Dry run', 'act.back': 'Back', 'act.rails': 'Checked before it runs', 'act.rails_n': ({ n: k }) => n(k, 'check', 'checks'), 'act.ladders': 'Ladder of each server', 'act.proposals': 'Proposed steps', 'act.server': 'Server', 'act.attempt': 'attempt {n}', 'act.verified': 'Verified. {by}',
  'act.needs_role': 'Needs the permission “approve”.', 'act.offline': 'Off until the server answers.', 'act.none': 'No action is proposed.', 'act.none_any': 'No action yet.', 'act.none_hint': 'An incident that calls for a repair shows its ladder here.', 'act.sent': 'Approved. It starts once its checks hold.', 'act.dry_sent': 'Dry run requested. Nothing changes.', 'act.was_cancelled': 'Cancellation requested.', 'act.irreversible': 'Interrupts what runs there', 'act.reversible': 'Can be undone',
  'act.then': 'Then', 'act.older': 'Show older', 'act.budgets': 'Budgets', 'act.budgets_none': 'Control has not counted its budgets yet.', 'act.level': ({ used, limit, reserved }) => `${used} of ${limit}${reserved ? `, ${reserved} reserved` : ''}`, 'act.rate': ({ used, limit, reserved }) => `${used} of ${limit} an hour${reserved ? `, ${reserved} reserved` : ''}`, 'act.blocked': 'none allowed', 'act.budget_key_used': 'used', 'act.budget_key_reserved': 'reserved for approvals', 'act.rack_rest': 'Every other rack: 0 of {n}.', 'act.breaker': 'Storm breaker', 'act.breaker_closed': 'lets steps through', 'act.breaker_open': 'stops every step', 'act.breaker_text': ({ ladders, limit, window_seconds }, f) => `${ladders} of ${limit} ladders that interrupt jobs, in ${f.dur(window_seconds)}`, 'act.counted': 'counted {age} ago', 'act.audit': 'Audit', 'act.audit_none': 'No decision or step is recorded yet.', 'act.audit_denied': 'Operators and admins can see who did what.', 'act.chain_holds': ({ rows }) => `Chain holds, ${n(rows, 'row', 'rows')}`, 'act.chain_broken': 'Chain broken at row {row}', 'act.chain_broken_text': 'Row {row} was changed after it was written. The rows below may be wrong.', 'act.chain_tip': 'Each row carries a hash of itself and of the row before. All rows were last checked {age} ago.',
  'scope.fleet': 'Fleet', 'scope.rack': 'Rack {name}', 'scope.hour': 'Interrupting steps',
  'audit.line': '{verb}: {what}', 'audit.propose': 'proposed', 'audit.refuse': 'did not propose', 'audit.dry-run': 'planned', 'audit.observe': 'checked again', 'audit.cancel': 'cancelled', 'audit.skip': 'skipped', 'audit.wait': 'held back', 'audit.expire': 'stopped waiting for', 'audit.fail': 'reported failed', 'audit.sent': 'sent', 'audit.intend': 'decided', 'audit.unknown': 'outcome unknown', 'audit.done': 'verified', 'audit.escalate': 'handed over', 'audit.withdraw': 'withdrew', 'audit.approve': 'approved', 'audit.effect': 'saw the effect', 'audit.create': 'created', 'audit.replace': 'replaced', 'audit.revoke': 'revoked', 'audit.issue': 'issued', 'audit.start': 'started', 'audit.end': 'ended', 'audit.request': 'requested',
  'actor.auspex': 'Auspex', 'actor.correlator': 'correlator', 'actor.control': 'control', 'actor.policy': 'policy',
  'rung.observe': 'Observe', 'rung.notify_owner': 'Notify the owner', 'rung.cap_power': 'Cap power', 'rung.cordon': 'Cordon', 'rung.drain': 'Drain', 'rung.reset_gpu': 'GPU reset', 'rung.reload_driver': 'Reload driver', 'rung.restart_service': 'Restart service', 'rung.reboot': 'Reboot', 'rung.power_cycle': 'Power cycle', 'rung.ac_cycle': 'AC cycle', 'rung.reset_bmc': 'Reset BMC', 'rung.reinstall': 'Reinstall', 'rung.replace': 'Replace', 'rung.inspect_feed': 'Inspect feed', 'rung.inspect_cooling': 'Inspect cooling', 'rung.inspect_cable': 'Inspect cable', 'rung.clean_optics': 'Clean optics', 'rung.quarantine': 'Quarantine', 'rung.ticket': 'Ticket', 'rung.uncordon': 'Return',
  'do.observe': 'Observe {target}', 'do.notify_owner': 'Notify the owner of {target}', 'do.cap_power': 'Cap the power of {target}', 'do.cordon': 'Keep new jobs off {target}', 'do.drain': 'Drain {target}', 'do.reset_gpu': 'Reset {target}', 'do.reload_driver': 'Reload the driver of {target}', 'do.restart_service': 'Restart the service on {target}', 'do.reboot': 'Reboot {target}', 'do.power_cycle': 'Power cycle {target}', 'do.ac_cycle': 'Switch the outlets of {target} off and on', 'do.reset_bmc': 'Reset the BMC of {target}', 'do.reinstall': 'Reinstall {target}', 'do.replace': 'Replace {target}', 'do.inspect_feed': 'Inspect {target}', 'do.inspect_cooling': 'Inspect the cooling of {target}', 'do.inspect_cable': 'Inspect the cable of {target}', 'do.clean_optics': 'Clean the optics of {target}', 'do.quarantine': 'Keep {target} out of the pool', 'do.ticket': 'Open a ticket for {target}', 'do.uncordon': 'Return {target} to the pool', 'do.token': 'token {target}', 'do.login_code': 'login code for {target}', 'do.session': 'session of {target}', 'do.route': '{target}',
  'rail.of': '{value} of {limit}', 'rail.at_least': '{value} ≥ {limit}', 'rail.at_most': '{value} ≤ {limit}', 'rail.holds': 'holds', 'rail.fails': 'does not hold', 'rail.confidence': 'Confidence', 'rail.evidence_age_seconds': 'Evidence', 'rail.rungs_before_done': 'Steps before', 'rail.fleet_budget': 'Fleet budget', 'rail.rack_budget': 'Rack budget', 'rail.destructive_per_hour': 'Hourly budget', 'rail.cool_down_seconds': 'Cool-down', 'rail.lease': 'Lease', 'rail.storm_breaker': 'Storm breaker', 'rail.still_drained': 'Still drained', 'rail.quiet_seconds': 'Repair holds', 'rail.own_evidence': 'Seen by our collectors', 'rail.maintenance_window': 'No maintenance window',

  // what a step says of itself
  'step.for_person': 'Needs a person.',
  'step.for_person_after': ({ kind, server }, f) => `${f.word('rung', kind)} did not work; ${server} stays out of the pool. A person takes over.`,
  'step.observed_only': 'Observed only.',
  'step.decided': 'Decided; waiting for the answer.',
  'step.sent': 'Sent; waiting for its effect.',
  'step.sent_unanswered': 'Sent; the answer is unknown: {error}',
  'step.resumed': 'Resumed after a restart; not sent again.',
  'step.waits_approval': 'Waits for approval.',
  'step.listens': 'Waits until {server} is heard, so that its silence is noticed.',
  'step.held': ({ rail, why }, f) => `Held by “${f.word('rail', rail)}”: ${why}`,
  'step.cancelled_by': ({ who }, f) => `Cancelled by ${f.word('actor', who)}.`,
  'step.cause_gone': 'The incident closed, or names another cause now.',
  'step.other_cause': 'The incident names another cause now.',
  'step.incident_closed': 'The incident closed.',
  'step.no_driver': ({ kind }, f) => `No driver for “${f.word('rung', kind)}” is configured.`,
  'step.cannot_look': 'No driver can read the state back.',
  'step.not_ours': 'Stays out of the pool: Auspex did not take it out.',
  'step.nobody_came': ({ seconds }, f) => `Not approved, or a check did not hold, within ${f.dur(seconds)}.`,
  'step.no_effect': ({ seconds, saw }, f) => `No effect within ${f.dur(seconds)}. ${saw}`,
  'step.outcome_unknown': 'The outcome is unknown. {saw}',
  'step.nothing_seen': 'No effect was observed.',
  'step.peer_error': 'It answered: {error}',
  'step.tried': 'Dry run: {what}',
  'step.would_drain': 'Would drain {server}; it is {states} now.',
  'step.drained_already': '{server} is drained already: {reason}',
  'step.would_return': 'Would return {server} to the pool once the repair is verified.',
  'step.scheduler_says': 'The scheduler reports {states}.',
  'step.would_cycle_on': 'Would power-cycle {server} through its BMC; power is on now.',
  'step.would_cycle_off': 'Would power-cycle {server} through its BMC; power is off now.',
  'step.power_off': 'Power is off.',
  'step.no_reset': 'Power is on and no reset was observed since.',
  'step.power_back': 'Power went off and came back.',
  'step.reset_at': 'The BMC reports a reset at {time}.',
  'step.would_reset': 'Would reset {gpus} of {server} through its agent; no process has them open now.',
  'step.would_reset_held': 'Would reset {gpus} of {server} through its agent. Now {held}; that must end before.',
  'step.would_reboot': 'Would reboot {server} through its agent.',
  'step.agent_unaware': 'The agent of {server} knows nothing of this step.',
  'step.agent_at_it': 'The agent of {server} is at it.',
  'step.agent_says': 'The agent of {server} says: {words}',
  'step.reset_unread': '{gpu} of {server} was reset; the agent has not read it since.',
  'step.reset_read': '{gpu} of {server} was reset, and the agent reads it again.',
  'step.rebooted': '{server} has started anew.',
  'step.both': '{first} {second}',
  'step.effect_seen': ({ saw, part, seconds }, f) => `${saw} ${part} must now be read for ${f.dur(seconds)} without a sign of the fault.`,
  'step.not_cured': 'The fault is still there. {saw}',
  'step.part_silent': '{collector} reads other parts of {server}, but not {part}.',
  'step.source_silent': 'The source that reported the fault of {part} has not read it since.',
  'step.silent_again': '{collector} read {part}, then lost it again.',
  'step.still_raised': '“{type}” is still raised on {part}.',
  'step.sign_since': '{part} reported “{type}” {code} at {time}, after the repair.',
  'step.not_long': ({ part, collector, seconds }, f) => `${collector} has read ${part} for only ${f.dur(seconds)} without a sign of the fault.`,
  'step.stands_still': '{collector} repeats the same values of {part}, which does not show that it works.',
  'step.never_silent': '{collector} never fell silent while {server} restarted: it repeats what was recorded.',
  'step.restart_unheard': 'Control did not listen while {server} restarted, and no energy counter shows that {collector} reads {part} since.',
  'step.not_restarted': '{collector} reads of {part} an energy counter that did not restart with {server}: it repeats what was recorded.',
  'step.wrong_pace': '{collector} reads {part}, whose time does not pass as ours does: it repeats what was recorded.',
  'step.lives': ({ part, collector, seconds }, f) => `${collector} has read ${part} for ${f.dur(seconds)} without a sign of the fault.`,

  // what was checked before it
  'check.confidence': 'The confidence is {value} %; the policy requires {limit} %.',
  'check.evidence_age': ({ seconds }, f) => `The evidence is ${f.dur(seconds)} old.`,
  'check.rungs_done': '{done} of {of} earlier steps are verified.',
  'check.rungs_planned': '{done} of {of} earlier steps are planned.',
  'check.fleet_budget': 'Auspex would hold {held} servers out of the pool; the limit is {limit}.',
  'check.rack_budget': 'Auspex would hold {held} servers of {rack} out of the pool; the limit is {limit}.',
  'check.hourly_rate': ({ n: k }) => `${n(k, 'step', 'steps')} of this kind in the last hour.`,
  'check.cool_down': ({ seconds, server }, f) => `${f.dur(seconds)} since the last step of this kind on ${server}.`,
  'check.first_such': 'No earlier step of this kind on {server}.',
  'check.breaker': ({ n: k, seconds }, f) => `${n(k, 'ladder', 'ladders')} that interrupt jobs began within ${f.dur(seconds)}.`,
  'check.lease_ours': 'Auspex holds the lease of {server}.',
  'check.lease_others': 'Another holder has the lease of {server}.',
  'check.seen_by': 'The fault of {part} was seen by our own collectors ({source}).',
  'check.seen_by_nobody': 'Only posted alerts blame {part}. No collector of Auspex saw its fault, so a person must approve.',
  'check.in_window': ({ server, window, by, until }, fmt) => `${server} is in maintenance window ${window} by ${by} until ${fmt.stamp(Date.parse(until))} UTC; Auspex repairs nothing there meanwhile.`, 'check.no_window': 'No maintenance window is open over {server}.',
  'check.vouched_for': 'None of our collectors saw the fault of {part}; {who} approved the step all the same.',

  // device
  'dev.forecast': 'Forecast', 'dev.will_fall': '{part} falls below {limit} {unit} in about {age}.', 'dev.will_rise': '{part} rises above {limit} {unit} in about {age}.', 'dev.probability': 'Probability within {age}', 'dev.signals': 'Evidence', 'dev.model': 'Model {name}, version {version}', 'dev.log': 'Log', 'dev.inventory': 'Inventory', 'dev.parts': 'Parts', 'dev.open': 'Open here', 'dev.contact': 'Last contact', 'dev.allocated': '{job} of {tenant}', 'dev.limit': 'Limit', 'dev.limit_default': 'Default limit', 'dev.default_hint': 'The limit is a default: the device gives none.', 'dev.now': 'now', 'dev.peers': 'peers, median', 'dev.range': 'Range', 'dev.event_lane': 'Events', 'dev.no_forecast': 'No part of this device is expected to fail soon.', 'dev.filter': 'Filter the log', 'dev.no_log': 'No event was reported.', 'dev.no_plots': 'No readings in this range.', 'dev.no_plots_hint': 'Plots appear once a collector reads the device.',
  'bound.upper_fatal': 'Fatal', 'bound.upper_critical': 'Critical', 'bound.upper_caution': 'Caution', 'bound.lower_caution': 'Caution', 'bound.lower_critical': 'Critical', 'bound.lower_fatal': 'Fatal', 'bound.range_max': 'Maximum', 'bound.range_min': 'Minimum',
  'plot.auspex_fan_speed_rpm': 'Fan speed', 'plot.auspex_fan_duty_ratio': 'Fan duty', 'plot.DCGM_FI_DEV_GPU_TEMP': 'GPU temperature', 'plot.DCGM_FI_DEV_MEMORY_TEMP': 'GPU memory temperature', 'plot.DCGM_FI_DEV_GPU_UTIL': 'GPU load', 'plot.DCGM_FI_DEV_POWER_USAGE': 'GPU power', 'plot.DCGM_FI_DEV_SM_CLOCK': 'GPU clock', 'plot.auspex_psu_input_power_watts': 'Supply input', 'plot.auspex_server_power_watts': 'Power', 'plot.auspex_server_inlet_temperature_celsius': 'Inlet temperature', 'plot.auspex_port_in_octets_total': 'Received', 'plot.auspex_port_out_octets_total': 'Sent', 'plot.auspex_port_rx_power_dbm': 'Received optical power', 'plot.auspex_port_pre_fec_ber_ratio': 'Bit errors before correction', 'plot.auspex_switch_temperature_celsius': 'Temperature',
  'part.server': 'Server', 'part.switch': 'Switch', 'part.pdu': 'PDU', 'part.rack': 'Rack', 'part.crac': 'CRAC', 'part.workload': 'Job', 'part.gpu': 'GPU', 'part.fan': 'Fan', 'part.psu': 'PSU', 'part.nic': 'NIC', 'part.port': 'Port', 'part.nvswitch': 'NVSwitch', 'part.dimm': 'DIMM', 'part.disk': 'Disk', 'part.cpu': 'CPU', 'part.bmc': 'BMC', 'part.pcie_switch': 'PCIe switch',

  // predictions
  'pre.part': 'Part', 'pre.what': 'What', 'pre.when': 'When', 'pre.chance': 'Chance', 'pre.now': 'Now', 'pre.signals': 'Evidence', 'pre.job': 'Job at risk', 'pre.empty': 'No part is expected to fail soon.', 'pre.empty_hint': 'A part appears here once its trend leads to a limit.', 'pre.head': ({ n: k }) => `${n(k, 'part is', 'parts are')} expected to fail.`, 'pre.past': 'Past predictions', 'pre.came_true': 'came true', 'pre.averted': 'averted', 'pre.expired': 'did not happen',
  'pre.trust': 'How reliable are they?', 'pre.window': ({ seconds }, f) => `the last ${f.dur(seconds)}`, 'pre.verdict': ({ hits, ended }) => `${hits} of ${n(ended, 'prediction', 'predictions')} that ended came true.`, 'pre.too_little': ({ ended }) => (ended === 0 ? 'No prediction has ended yet, so there is nothing to judge by.' : `Only ${n(ended, 'prediction has', 'predictions have')} ended: too few to judge by.`), 'pre.hits': 'came true', 'pre.false': 'false alarms', 'pre.missed': 'failures without a prediction', 'pre.averted_n': 'averted', 'pre.lead': 'median lead time', 'pre.said': 'Predicted and observed', 'pre.said_range': 'Predicted {from} – {to}', 'pre.said_of': '{hits} of {ended}', 'pre.said_none': 'No prediction with a recorded first probability has ended yet.', 'pre.averted_tip': 'The reading moved away from the limit, for example after a repair. Counts as neither right nor wrong.',

  // explore
  'exp.title': 'Explore', 'exp.query': 'PromQL', 'exp.run': 'Run', 'exp.examples': 'Examples', 'exp.series': ({ n: k }) => n(k, 'series', 'series'), 'exp.first': 'showing the first {n}', 'exp.failed': 'The query failed', 'exp.nothing': 'No series matches in this range.', 'exp.curl': 'The same with curl', 'exp.last': 'Last', 'exp.min': 'Min', 'exp.max': 'Max', 'exp.label': 'Series', 'exp.empty': 'No metric has arrived yet.',

  // login
  'login.title': 'Log in', 'login.hint': 'Open the address that Auspex printed at start, or paste the address, its code or a token here.', 'login.secret': 'Address, code or token', 'login.enter': 'Log in', 'login.out': 'Log out',

  // palette and keys
  'pal.placeholder': 'Server, incident, job, page or command', 'pal.none': 'No match.', 'pal.go': 'Go to', 'pal.server': 'Server', 'pal.resource': 'Inventory', 'pal.incident': 'Incident', 'pal.command': 'Command', 'pal.theme': 'Switch between light and dark', 'pal.language': 'Switch to 中文',
  'keys.title': 'Keyboard', 'keys.find': 'Search or run', 'keys.move': 'Next, previous', 'keys.open': 'Open', 'keys.back': 'Back', 'keys.problem': 'Next, previous problem', 'keys.zoom': 'Zoom', 'keys.approve': 'Approve (asks first)', 'keys.dry': 'Dry run', 'keys.this': 'This list', 'keys.evidence': 'Fold, unfold evidence',

  // what a person says about the cause, and how right the causes were
  'cor.title': 'Was this the cause?', 'cor.none': 'Nobody has said so far. Verdicts show how right the causes are, and teach the system.', 'cor.right': 'Right', 'cor.cause': 'Another cause', 'cor.no_incident': 'No incident', 'cor.is.right': 'The cause is right.', 'cor.is.cause': 'The cause was another:', 'cor.is.no_incident': 'This was no incident.', 'cor.by': '{who}, {when} UTC', 'cor.change': 'Change', 'cor.withdraw': 'Withdraw', 'cor.ask': 'What was the cause?', 'cor.said': 'Named was {resource}, {fault}, at {p}.', 'cor.verdict': 'Verdict', 'cor.resource': 'Resource or job', 'cor.fault': 'What was wrong with it', 'cor.choose': 'Choose', 'cor.other': 'Something else', 'cor.note': 'Note', 'cor.save': 'Save the verdict',
  'audit.correct': 'judged', 'audit.learn': 'changed the learned parameters', 'do.right': 'incident {target} named the right cause', 'do.cause': 'incident {target} had another cause', 'do.no_incident': 'incident {target} was none', 'do.withdrawn': 'the verdict on incident {target} is withdrawn', 'do.activate_parameters': '{target} in force',
  'edge.title': 'What follows what', 'edge.open': ({ n: k }) => `${n(k, 'proposal waits', 'proposals wait')} for a decision`, 'edge.lead': 'Counted from how events followed one another here. Nothing counts for a cause until a person accepts it; what is accepted is in force at once and can be taken back.', 'edge.none': 'No proposals.', 'edge.none_hint': 'Once a day, where incidents have closed, it is looked for what follows what in the alerts of the last months. At once:',
  'edge.is.open': 'open', 'edge.is.accepted': 'accepted', 'edge.is.declined': 'declined', 'edge.is.withdrawn': 'taken back', 'edge.do.accepted': 'Accept', 'edge.do.declined': 'Decline', 'edge.do.withdrawn': 'Take back',
  'edge.says': '{fault}: {shown} of {cases} times it followed {lag} later, on {where}.', 'edge.lift': '{lift} times as often as by chance ({chance} in as long a time); {events} events from {from} to {to}.', 'edge.no_cause': 'No fault record knows the cause; there is nothing to accept.', 'edge.version': 'version {version} of the learned parameters',
  'edge.examples': ({ n: k }) => n(k, 'example', 'examples'), 'edge.when': 'When', 'edge.part': 'Cause at', 'edge.shown': 'Showed it', 'edge.lag': 'After', 'edge.events': 'Events',
  'edge.ask.accepted': 'Accept as a sign of the cause?', 'edge.ask.declined': 'Decline the proposal?', 'edge.ask.withdrawn': 'Take the acceptance back?', 'edge.means.accepted': 'Where it comes, it speaks for the fault and goes into its incident. Where it does not come, nothing changes.', 'edge.means.declined': 'It is habit or chance: the causes stay as they are. It can be accepted later.', 'edge.means.withdrawn': 'The correlator decides as before; what is open is decided anew.', 'edge.fault': 'Sign of', 'edge.force': 'In force: on {where}, shown in {shows} of cases, by {share} of the parts, after {lag} on average.', 'edge.reason': 'Why?',
  'edge.itself': 'the part itself', 'edge.step.up': 'its {kind}', 'edge.step.down': 'each {kind} in it', 'edge.step.powers': 'each {kind} it powers', 'edge.step.cools': 'each {kind} it cools', 'edge.step.feeds': 'each {kind} it feeds', 'edge.step.powered': 'the {kind} that powers it', 'edge.step.cooled': 'the {kind} that cools it', 'edge.step.fed': 'the {kind} that feeds it', 'edge.step.net': 'each {kind} linked to it', 'edge.step.nvlink': 'each {kind} on its NVLink', 'edge.step.pcie': 'each {kind} on its PCIe', 'edge.step.jobs': 'each job on it', 'edge.step.loose': 'each {kind} in it without a link', 'do.edge_accepted': 'proposal {target} accepted', 'do.edge_declined': 'proposal {target} declined', 'do.edge_withdrawn': 'proposal {target} taken back',
  'his.title': 'How right are the causes?', 'his.judged': ({ judged, closed }) => `${judged.toLocaleString('en-GB')} judged, ${closed.toLocaleString('en-GB')} closed in a year`, 'his.none': 'Nobody has judged an incident yet.', 'his.none_hint': 'Say on an incident whether its cause was right. From some twenty verdicts on, shares mean something.', 'his.verdict': ({ right, judged }) => `${right} of ${n(judged, 'judged incident', 'judged incidents')} named the right cause.`, 'his.too_few': ({ right, judged }) => `${right} of ${n(judged, 'judged incident', 'judged incidents')} named the right cause: too few for a share to mean something.`, 'his.rate': 'right', 'his.rate_tip': '{right} of {judged}', 'his.p50': 'median time to the right cause', 'his.p95': 'in 95 % of these within', 'his.error': 'calibration error', 'his.error_tip': 'How far the confidence is from the share that was right, on average.', 'his.no_incident': 'were no incident', 'his.curve': 'Confidence against right', 'his.said': 'said, %', 'his.true': 'came true, %', 'his.how': 'A dot is incidents of like confidence, the larger the more; on the dashed line they are right as often as was said.', 'his.over': 'Too sure: {said} was said on average, {right} came true.', 'his.under': 'Too modest: {said} was said on average, {right} came true.', 'his.fits': 'As sure as it is right: {said} was said on average, {right} came true.', 'his.took': 'Median time', 'his.bin': 'said {from} – {to}: {right} of {n} right', 'his.fault': 'What it was', 'his.right': 'Right', 'his.at_once': 'at once', 'his.learned': 'Learned parameters, version {version}, are in force.', 'his.unlearned': 'No learned parameters are in force.',

  // declared work
  'enr.title': 'What node agents propose for the inventory', 'enr.open': ({ n: k }) => `${n(k, 'proposal waits', 'proposals wait')} for a decision`, 'enr.lead': 'Each is all in which the word of an agent differs from the inventory. Nothing of it counts until a person accepts it.', 'enr.differs': ({ n: k, conflicts }) => `differs in ${n(k, 'point', 'points')}${conflicts > 0 ? `, ${n(conflicts, 'conflict', 'conflicts')} among them` : ''}`, 'enr.new': ({ n: k, conflicts }) => `is not in the inventory; ${n(k, 'part', 'parts')} in all${conflicts > 0 ? `, ${n(conflicts, 'conflict', 'conflicts')}` : ''}`,
  'enr.dialled': 'Dialled in as {host}, with the join token {token}; {when} UTC', 'enr.read': 'Read at {address}; {when} UTC', 'enr.lost': 'has no place in the inventory', 'enr.verb': 'Is', 'enr.what': 'What', 'enr.inventory': 'Inventory', 'enr.agent': 'Agent', 'enr.cable': 'cable', 'enr.is.added': 'new', 'enr.is.changed': 'not known', 'enr.is.conflict': 'conflict',
  'enr.do.accepted': 'Accept {server}', 'enr.do.declined': 'Decline {server}', 'enr.ask.accepted': 'Bring {server} into the inventory as its agent has it?', 'enr.ask.declined': 'Decline what the agent of {server} says?', 'enr.means.accepted': 'It is imported as source agent, and read from then on. What other sources bring stays.', 'enr.means.declined': 'It does not come back until it says something else.', 'enr.wins': ({ n: k }) => `In ${n(k, 'conflict', 'conflicts')} the word of the agent counts, until another source is imported anew.`, 'enr.why.host_name': 'its host name alone says that it is this server.', 'enr.why.kind': 'the inventory has something else under this name.', 'enr.why.differs': 'the inventory has {attr} {inventory} here, the agent finds {agent}.', 'enr.why.elsewhere': 'in the inventory {agent} is that of {others}.', 'enr.why.told_twice': 'the agent tells {agent} of more than one part.', 'enr.why.cable': 'the inventory has its cable in {others}, LLDP says {agent}.', 'enr.why.port_taken': 'in the inventory {agent} has the cable of {others}.', 'enr.reason': 'Why?', 'enr.remark': 'Remark, for the audit',
  'audit.join': 'joined', 'audit.deny': 'was turned away', 'audit.place': 'placed', 'audit.accept': 'accepted', 'audit.decline': 'declined', 'do.join_token': 'join token {target}', 'do.machine': 'machine {target}', 'do.proposal': 'what the agent of {target} says',
  'mnt.title': 'Maintenance', 'mnt.declare': 'Declare maintenance', 'mnt.means': 'What such work does (lost contact, restarts, links down, power lost) is no incident meanwhile, and nothing is repaired there. Everything else is told as ever, and so is what does not come back.', 'mnt.resources': 'Servers, switches, racks or PDUs', 'mnt.from': 'From, UTC (empty: now)', 'mnt.lasts': 'Lasts', 'mnt.reason': 'What is done', 'mnt.none': 'No maintenance is declared.', 'mnt.until': 'until {until} UTC, another {age}', 'mnt.between': '{from} to {until} UTC', 'mnt.by': '{who}, {id}', 'mnt.end': 'End now', 'mnt.withdraw': 'Withdraw', 'mnt.is.open': 'Open', 'mnt.is.to_come': 'To come', 'mnt.is.over': 'Over',
  'audit.declare_maintenance': 'declared', 'audit.end_maintenance': 'ended', 'do.maintenance': 'maintenance of {target}', 'audit.import': 'imported', 'do.inventory': 'the inventory of the source {target}',
};
