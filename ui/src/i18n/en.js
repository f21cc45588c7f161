// English. Keys are the same as in zh.js.
const n = (count, one, many) => (count === 1 ? `1 ${one}` : `${count.toLocaleString('en-GB')} ${many}`);

export const en = {
  // shell
  'nav.fleet': 'Fleet', 'nav.incidents': 'Incidents', 'nav.predictions': 'Predictions', 'nav.actions': 'Actions', 'nav.explore': 'Explore', 'nav.more': 'More', 'nav.label': 'Pages', 'nav.skip': 'Skip to content',
  'shell.find': 'Find or do', 'shell.live': 'Live', 'shell.connecting': 'Connecting', 'shell.lost': 'No contact',
  'shell.lost_text': ({ for: age }) => `No contact with the server for ${age}. You see what was known then. Buttons that change something are off until it answers.`,
  'shell.stale': 'This part could not be refreshed. It shows what was known before.',
  'shell.simulated': 'Simulated fleet', 'shell.theme': 'Light or dark', 'shell.language': 'Language', 'shell.keys': 'Keyboard', 
  'mode.observe': 'Observe', 'mode.dry-run': 'Dry run', 'mode.approve': 'Approve', 'mode.enforce': 'Enforce', 'mode.label': 'Mode', 'mode.observe.tip': 'The system says what it would do and sends nothing.', 'mode.dry-run.tip': 'The system plans each step against the real machines and sends nothing.', 'mode.approve.tip': 'The system proposes; a person approves each step.', 'mode.enforce.tip': 'The system repairs by itself within its budgets.',
  'unit.d': 'd', 'unit.h': 'h', 'unit.min': 'min', 'unit.s': 's',
  'in': 'in {age}', 'all': 'All', 'more': '{n} more', 'close': 'Close',
  'load.wait': 'Loading', 'load.error': 'Could not load', 'load.retry': 'Try again', 'load.denied': 'You may not see this', 'load.denied_hint': 'Your role has no right to read it. An admin can grant it.',
  'missing.title': 'There is no such page', 'missing.hint': 'Press / to find a server, an incident or a command.',

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
  'fleet.empty': 'No server is known yet.', 'fleet.empty_hint': 'Import an inventory, sweep a range of BMC addresses, or start the simulated fleet.',
  'fleet.no_incident': 'No open incident.', 'fleet.no_prediction': 'No part is expected to fail soon.',
  'by.health': 'Health', 'by.temp': 'Temperature', 'by.power': 'Power', 'by.load': 'Load', 'by.risk': 'Risk', 'by.job': 'Job', 'by.label': 'Colour by',
  'map.fit': 'Fit', 'map.in': 'Zoom in', 'map.out': 'Zoom out', 'map.table': 'Table', 'map.only': 'Only problems', 'map.server': 'Server', 'map.state': 'State', 'map.job': 'Job', 'map.free': 'free',

  // incident
  'inc.against': 'What speaks against it', 'inc.would_change': 'What would change our mind', 'inc.similar': 'Before', 'inc.cured_by': 'cured by', 'inc.not_cured': 'nothing done by Auspex', 'inc.match.resource': 'same part', 'inc.match.model': 'same model', 'inc.match.fault': 'same fault',
  'inc.title': 'Incidents', 'inc.open': 'Open', 'inc.repair': 'In repair', 'inc.closed': 'Closed', 'inc.merged': 'Merged', 'inc.cause': 'Cause', 'inc.confidence': 'Confidence', 'inc.confidence_tip': 'Of all incidents with this confidence, this share names the right cause.',
  'inc.why': 'Why we think so', 'inc.evidence': 'Evidence', 'inc.graph': 'Cause and effect', 'inc.alternatives': 'What else it could be', 'inc.jobs': 'Jobs hit', 'inc.todo': 'What to do', 'inc.opened': 'Opened', 'inc.lasts': 'Lasts', 'inc.servers': 'Servers', 'inc.alerts': 'Alerts', 'inc.n_alerts': ({ n: k }) => n(k, 'alert', 'alerts'),
  'inc.folded': ({ alerts }) => `${n(alerts, 'alert', 'alerts')}, 1 incident`, 'inc.repeat': '(repeats)', 'inc.merged_into': 'Merged into {id}', 'inc.as_text': 'As text', 'inc.axis': 'time since the first alert, logarithmic', 'inc.none': 'No incident matches.', 
  'inc.affects': ({ servers, jobs }) => `${n(servers, 'server', 'servers')}${jobs ? `, ${n(jobs, 'job', 'jobs')}` : ''}`, 'inc.what': 'What happened', 'inc.no_detail': 'The alerts of this incident are no longer kept.', 'inc.fold_line': 'Alerts folded', 'inc.reports_of': '{n} of {of} report', 'inc.quiet': 'silent, as expected',

  // predictions in a sentence
  'predict.falls': ({ part, server, limit, unit, seconds }, f) => `${part} of ${server} falls below ${f.num(limit)} ${unit} in about ${f.dur(seconds)}.`,
  'predict.rises': ({ part, server, limit, unit, seconds }, f) => `${part} of ${server} rises above ${f.num(limit)} ${unit} in about ${f.dur(seconds)}.`,
  'predict.falls_default': ({ part, server, limit, unit, seconds }, f) => `${part} of ${server} falls below ${f.num(limit)} ${unit} (a default: the device gives no limit) in about ${f.dur(seconds)}.`,
  'predict.rises_default': ({ part, server, limit, unit, seconds }, f) => `${part} of ${server} rises above ${f.num(limit)} ${unit} (a default: the device gives no limit) in about ${f.dur(seconds)}.`,
  'predict.below_default': '{part} of {server} fell below {limit} {unit} (a default: the device gives no limit).', 'predict.above_default': '{part} of {server} rose above {limit} {unit} (a default: the device gives no limit).',
  'predict.below': '{part} of {server} fell below {limit} {unit}.', 'predict.above': '{part} of {server} rose above {limit} {unit}.', 'predict.averted': '{part} of {server} has moved away from {limit} {unit} again.', 'predict.expired': '{part} of {server} no longer runs towards {limit} {unit}.',

  'role.cause': 'cause', 'role.affected': 'effect', 'role.silent': 'silent', 'role.context': 'between',
  'link.powers': 'power', 'link.cools': 'cooling', 'link.network': 'network', 'link.nvlink': 'NVLink', 'link.pcie': 'PCIe', 'link.contains': 'part of', 'link.runs': 'runs on',

  // actions
  'act.headline': ({ n: k, proposed }) => (k > 0 ? `${n(k, 'action waits', 'actions wait')} for you.` : proposed > 0 ? `Nothing waits for you; ${n(proposed, 'step is', 'steps are')} proposed.` : 'Nothing waits for you.'),
  'act.proposed': 'Proposed', 'act.waiting': 'Waits for approval', 'act.approved': 'Approved', 'act.running': 'Running', 'act.verifying': 'Verifying', 'act.done': 'Done', 'act.failed': 'Failed', 'act.unknown': 'Outcome not known', 'act.cancelled': 'Cancelled', 'act.refused': 'Not proposed', 'act.would.dry-run': 'Dry run: nothing was changed', 'act.would.observe': 'Observed only', 'act.person': 'For a person', 'act.recommended': 'Recommended',
  'act.approve': 'Approve', 'act.cancel': 'Cancel', 'act.dry_run': 'Dry run', 'act.back': 'Back', 'act.rails': 'Checked before it may run', 'act.rails_n': ({ n: k }) => n(k, 'check', 'checks'), 'act.ladders': 'Ladder of each server', 'act.proposals': 'Proposed steps', 'act.server': 'Server', 'act.attempt': 'attempt {n}', 'act.verified': 'Verified. {by}',
  'act.needs_role': 'Needs the right “approve”.', 'act.offline': 'Off until the server answers.', 'act.none': 'No action is proposed.', 'act.none_any': 'No action yet.', 'act.none_hint': 'An incident that calls for a repair shows its ladder here.', 'act.sent': 'Approved. It starts when its checks hold.', 'act.dry_sent': 'Asked for a dry run. Nothing is changed.', 'act.was_cancelled': 'Asked to cancel.', 'act.irreversible': 'Stops what runs there', 'act.reversible': 'Can be undone',
  'act.then': 'Then', 'act.older': 'Show older', 'act.budgets': 'Budgets', 'act.budgets_none': 'Control has not counted its budgets yet.', 'act.level': ({ used, limit, reserved }) => `${used} of ${limit}${reserved ? `, ${reserved} reserved` : ''}`, 'act.rate': ({ used, limit, reserved }) => `${used} of ${limit} an hour${reserved ? `, ${reserved} reserved` : ''}`, 'act.blocked': 'none allowed', 'act.budget_key_used': 'used', 'act.budget_key_reserved': 'reserved for approvals', 'act.rack_rest': 'Every other rack: 0 of {n}.', 'act.breaker': 'Storm breaker', 'act.breaker_closed': 'lets steps through', 'act.breaker_open': 'stops every step', 'act.breaker_text': ({ ladders, limit, window_seconds }, f) => `${ladders} of ${limit} ladders that stop what runs, in ${f.dur(window_seconds)}`, 'act.counted': 'counted {age} ago', 'act.audit': 'Audit', 'act.audit_none': 'Nothing was done or decided yet.', 'act.audit_denied': 'Operators and admins see who did what.', 'act.chain_holds': ({ rows }) => `Chain holds, ${n(rows, 'row', 'rows')}`, 'act.chain_broken': 'Chain broken at row {row}', 'act.chain_broken_text': 'Row {row} is not as it was written: somebody changed the store. What stands below may be wrong.', 'act.chain_tip': 'Each row has a hash over itself and the row before. All were last read {age} ago.',
  'scope.fleet': 'Fleet', 'scope.rack': 'Rack {name}', 'scope.hour': 'Stops what runs',
  'audit.line': '{verb}: {what}', 'audit.propose': 'proposed', 'audit.refuse': 'did not propose', 'audit.dry-run': 'planned', 'audit.observe': 'looked again', 'audit.cancel': 'cancelled', 'audit.skip': 'left out', 'audit.wait': 'held back', 'audit.expire': 'gave up waiting', 'audit.fail': 'saw it fail', 'audit.sent': 'sent', 'audit.intend': 'decided', 'audit.unknown': 'cannot see the outcome', 'audit.done': 'verified', 'audit.escalate': 'handed over', 'audit.withdraw': 'withdrew',
  'actor.auspex': 'Auspex', 'actor.correlator': 'correlator', 'actor.control': 'control', 'actor.policy': 'policy',
  'rung.observe': 'Observe', 'rung.notify_owner': 'Tell the owner', 'rung.cap_power': 'Cap power', 'rung.cordon': 'Cordon', 'rung.drain': 'Drain', 'rung.reset_gpu': 'GPU reset', 'rung.reload_driver': 'Reload driver', 'rung.restart_service': 'Restart service', 'rung.reboot': 'Reboot', 'rung.power_cycle': 'Power cycle', 'rung.ac_cycle': 'AC cycle', 'rung.reset_bmc': 'Reset BMC', 'rung.reinstall': 'Reinstall', 'rung.replace': 'Replace', 'rung.inspect_feed': 'Inspect feed', 'rung.inspect_cooling': 'Inspect cooling', 'rung.inspect_cable': 'Inspect cable', 'rung.clean_optics': 'Clean optics', 'rung.quarantine': 'Quarantine', 'rung.ticket': 'Ticket', 'rung.uncordon': 'Return',
  'do.observe': 'Watch {target}', 'do.notify_owner': 'Tell the owner of {target}', 'do.cap_power': 'Cap the power of {target}', 'do.cordon': 'Keep new jobs off {target}', 'do.drain': 'Drain {target}', 'do.reset_gpu': 'Reset {target}', 'do.reload_driver': 'Reload the driver of {target}', 'do.restart_service': 'Restart the service on {target}', 'do.reboot': 'Reboot {target}', 'do.power_cycle': 'Power cycle {target}', 'do.ac_cycle': 'Cut the outlets of {target}', 'do.reset_bmc': 'Reset the BMC of {target}', 'do.reinstall': 'Reinstall {target}', 'do.replace': 'Replace {target}', 'do.inspect_feed': 'Inspect {target}', 'do.inspect_cooling': 'Inspect the cooling of {target}', 'do.inspect_cable': 'Inspect the cable of {target}', 'do.clean_optics': 'Clean the optics of {target}', 'do.quarantine': 'Keep {target} out of the pool', 'do.ticket': 'Open a ticket for {target}', 'do.uncordon': 'Return {target} to the pool',
  'rail.of': '{value} of {limit}', 'rail.at_least': '{value} ≥ {limit}', 'rail.at_most': '{value} ≤ {limit}', 'rail.holds': 'holds', 'rail.fails': 'does not hold', 'rail.confidence': 'Confidence', 'rail.evidence_age_seconds': 'Evidence', 'rail.rungs_before_done': 'Steps before', 'rail.fleet_budget': 'Fleet budget', 'rail.rack_budget': 'Rack budget', 'rail.destructive_per_hour': 'Hourly budget', 'rail.cool_down_seconds': 'Cool-down', 'rail.lease': 'Lease', 'rail.storm_breaker': 'Storm breaker', 'rail.still_drained': 'Still drained', 'rail.quiet_seconds': 'Repair holds',

  // what a step says of itself
  'step.for_person': 'Only a person can do it.',
  'step.for_person_after': ({ kind, server }, f) => `${f.word('rung', kind)} did not work; ${server} stays out of the pool. A person takes over.`,
  'step.observed_only': 'Observed only.',
  'step.decided': 'Decided; the answer is awaited.',
  'step.sent': 'Sent; its effect is awaited.',
  'step.sent_unanswered': 'Sent; the answer is not known: {error}',
  'step.resumed': 'Taken up after a restart; it is not sent again.',
  'step.waits_approval': 'Waits for a person.',
  'step.held': ({ rail, why }, f) => `Held by “${f.word('rail', rail)}”: ${why}`,
  'step.cancelled_by': ({ who }, f) => `Cancelled by ${f.word('actor', who)}.`,
  'step.cause_gone': 'The incident closed or names another cause now.',
  'step.other_cause': 'The incident names another cause now.',
  'step.incident_closed': 'The incident closed.',
  'step.no_driver': ({ kind }, f) => `There is no driver for “${f.word('rung', kind)}” here.`,
  'step.cannot_look': 'There is no driver to look with.',
  'step.not_ours': 'Left out of the pool: it was not we who took it out.',
  'step.nobody_came': ({ seconds }, f) => `Nobody approved, or a check did not hold, within ${f.dur(seconds)}.`,
  'step.no_effect': ({ seconds, saw }, f) => `No effect within ${f.dur(seconds)}. ${saw}`,
  'step.outcome_unknown': 'The outcome is not known. {saw}',
  'step.nothing_seen': 'Nothing was seen.',
  'step.peer_error': 'The answer was: {error}',
  'step.tried': 'Tried: {what}',
  'step.would_drain': 'Would drain {server}; it is {states} now.',
  'step.drained_already': '{server} is drained already: {reason}',
  'step.would_return': 'Would return {server} to the pool once the repair is verified.',
  'step.scheduler_says': 'The scheduler says {states}.',
  'step.would_cycle_on': 'Would power-cycle {server} through its BMC; power is on now.',
  'step.would_cycle_off': 'Would power-cycle {server} through its BMC; power is off now.',
  'step.power_off': 'Power is off.',
  'step.no_reset': 'Power is on and no reset was seen since.',
  'step.power_back': 'Power went off and came back.',
  'step.reset_at': 'The BMC reports a reset at {time}.',
  'step.both': '{first} {second}',
  'step.effect_seen': ({ saw, part, seconds }, f) => `${saw} ${part} has to be read for ${f.dur(seconds)} without a sign of the fault.`,
  'step.not_cured': 'The fault is still there. {saw}',
  'step.part_silent': '{collector} reads others of {server}, and not {part}.',
  'step.source_silent': 'Who saw the fault of {part} has read nothing of it since.',
  'step.silent_again': '{part} was read by {collector} and fell silent again.',
  'step.still_raised': '“{type}” still stands on {part}.',
  'step.sign_since': '“{type}” {code} came from {part} at {time}, after the repair.',
  'step.not_long': ({ part, collector, seconds }, f) => `${part} is read by ${collector}, for ${f.dur(seconds)} without a sign of the fault.`,
  'step.lives': ({ part, collector, seconds }, f) => `${collector} has read ${part} for ${f.dur(seconds)} without a sign of the fault.`,

  // what was checked before it
  'check.confidence': 'The cause has {value} %; the policy asks for {limit} %.',
  'check.evidence_age': ({ seconds }, f) => `The evidence is ${f.dur(seconds)} old.`,
  'check.rungs_done': '{done} of {of} steps before are verified.',
  'check.rungs_planned': '{done} of {of} steps before are planned.',
  'check.fleet_budget': '{held} of {limit} servers would be out of the pool by us.',
  'check.rack_budget': '{held} of {limit} servers of {rack} would be out of the pool by us.',
  'check.hourly_rate': ({ n: k }) => `${n(k, 'such step', 'such steps')} in the last hour.`,
  'check.cool_down': ({ seconds, server }, f) => `${f.dur(seconds)} since the last such step on ${server}.`,
  'check.first_such': 'There was no such step on {server} before.',
  'check.breaker': ({ n: k, seconds }, f) => `${n(k, 'ladder', 'ladders')} that stop what runs in ${f.dur(seconds)}.`,
  'check.lease_ours': 'The lease of {server} is ours.',
  'check.lease_others': 'Somebody else holds the lease of {server}.',

  // device
  'dev.forecast': 'Forecast', 'dev.will_fall': '{part} falls below {limit} {unit} in about {age}.', 'dev.will_rise': '{part} rises above {limit} {unit} in about {age}.', 'dev.probability': 'Chance within {age}', 'dev.signals': 'What speaks for it', 'dev.model': 'Model {name}, version {version}', 'dev.log': 'Log', 'dev.inventory': 'Inventory', 'dev.parts': 'Parts', 'dev.open': 'Open here', 'dev.contact': 'Last contact', 'dev.allocated': '{job} of {tenant}', 'dev.limit': 'Limit', 'dev.limit_default': 'Default limit', 'dev.default_hint': 'The limit is a default: the device gives none.', 'dev.now': 'now', 'dev.peers': 'peers, median', 'dev.range': 'Range', 'dev.event_lane': 'Events', 'dev.no_forecast': 'No part of this device is expected to fail soon.', 'dev.filter': 'Filter the log', 'dev.no_log': 'Nothing was reported.', 'dev.no_plots': 'Nothing was measured in this range.', 'dev.no_plots_hint': 'Numbers appear when a collector has read the device.',
  'bound.upper_fatal': 'Fatal', 'bound.upper_critical': 'Critical', 'bound.upper_caution': 'Caution', 'bound.lower_caution': 'Caution', 'bound.lower_critical': 'Critical', 'bound.lower_fatal': 'Fatal', 'bound.range_max': 'Greatest', 'bound.range_min': 'Least',
  'plot.auspex_fan_speed_rpm': 'Fan speed', 'plot.auspex_fan_duty_ratio': 'Fan duty', 'plot.DCGM_FI_DEV_GPU_TEMP': 'GPU temperature', 'plot.DCGM_FI_DEV_MEMORY_TEMP': 'GPU memory temperature', 'plot.DCGM_FI_DEV_GPU_UTIL': 'GPU load', 'plot.DCGM_FI_DEV_POWER_USAGE': 'GPU power', 'plot.DCGM_FI_DEV_SM_CLOCK': 'GPU clock', 'plot.auspex_psu_input_power_watts': 'Supply input', 'plot.auspex_server_power_watts': 'Power', 'plot.auspex_server_inlet_temperature_celsius': 'Inlet temperature', 'plot.auspex_port_in_octets_total': 'Received', 'plot.auspex_port_out_octets_total': 'Sent', 'plot.auspex_port_rx_power_dbm': 'Received light', 'plot.auspex_port_pre_fec_ber_ratio': 'Bit errors before correction', 'plot.auspex_switch_temperature_celsius': 'Temperature',
  'part.server': 'Server', 'part.switch': 'Switch', 'part.pdu': 'PDU', 'part.rack': 'Rack', 'part.crac': 'CRAC', 'part.workload': 'Job', 'part.gpu': 'GPU', 'part.fan': 'Fan', 'part.psu': 'PSU', 'part.nic': 'NIC', 'part.port': 'Port', 'part.nvswitch': 'NVSwitch', 'part.dimm': 'DIMM', 'part.disk': 'Disk', 'part.cpu': 'CPU', 'part.bmc': 'BMC', 'part.pcie_switch': 'PCIe switch',

  // predictions
  'pre.part': 'Part', 'pre.what': 'What', 'pre.when': 'When', 'pre.chance': 'Chance', 'pre.now': 'Now', 'pre.signals': 'What speaks for it', 'pre.job': 'Job at risk', 'pre.empty': 'No part is expected to fail soon.', 'pre.empty_hint': 'A part appears here when its trend runs towards a limit.', 'pre.head': ({ n: k }) => `${n(k, 'part is', 'parts are')} expected to fail.`, 'pre.past': 'Said before', 'pre.came_true': 'came true', 'pre.averted': 'averted', 'pre.expired': 'did not come',
  'pre.trust': 'Can I believe it?', 'pre.window': ({ seconds }, f) => `the last ${f.dur(seconds)}`, 'pre.verdict': ({ hits, ended }) => `${hits} of ${n(ended, 'prediction', 'predictions')} that ended came true.`, 'pre.too_little': ({ ended }) => (ended === 0 ? 'No prediction has ended yet, so there is nothing to judge them by.' : `Only ${n(ended, 'prediction has', 'predictions have')} ended: too little to judge by.`), 'pre.hits': 'came true', 'pre.false': 'false alarms', 'pre.missed': 'failures that none foretold', 'pre.averted_n': 'averted', 'pre.lead': 'median warning', 'pre.said': 'Said against came true', 'pre.said_range': 'Said {from} – {to}', 'pre.said_of': '{hits} of {ended}', 'pre.said_none': 'No prediction that kept its first probability has ended yet.', 'pre.averted_tip': 'Moved away from the limit, as after a repair. Counts neither way.',

  // explore
  'exp.title': 'Explore', 'exp.query': 'PromQL', 'exp.run': 'Run', 'exp.examples': 'Examples', 'exp.series': ({ n: k }) => n(k, 'series', 'series'), 'exp.first': 'the first {n} are drawn', 'exp.failed': 'The query failed', 'exp.nothing': 'Nothing matches in this range.', 'exp.curl': 'The same with curl', 'exp.last': 'Last', 'exp.min': 'Min', 'exp.max': 'Max', 'exp.label': 'Series', 'exp.empty': 'No metric has arrived yet.',

  // login
  'login.title': 'Log in', 'login.hint': 'Open the address that the server printed when it started, or paste it, its code or a token here.', 'login.secret': 'Address, code or token', 'login.enter': 'Log in', 'login.out': 'Log out',

  // palette and keys
  'pal.placeholder': 'Server, incident, job, page or command', 'pal.none': 'Nothing found.', 'pal.go': 'Go to', 'pal.server': 'Server', 'pal.resource': 'Inventory', 'pal.incident': 'Incident', 'pal.command': 'Command', 'pal.theme': 'Switch between light and dark', 'pal.language': 'Switch to 中文',
  'keys.title': 'Keyboard', 'keys.find': 'Find or do', 'keys.move': 'Next, previous', 'keys.open': 'Open', 'keys.back': 'Back', 'keys.problem': 'Next, previous problem', 'keys.zoom': 'Zoom', 'keys.approve': 'Approve (asks first)', 'keys.dry': 'Dry run', 'keys.this': 'This list', 'keys.evidence': 'Fold, unfold evidence',
};
