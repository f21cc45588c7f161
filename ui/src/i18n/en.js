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
  'in': 'in {age}', 'all': 'All', 'more': '{n} more', 'close': 'Close', 'join': '{a}. {b}',
  'load.wait': 'Loading', 'load.error': 'Could not load', 'load.retry': 'Try again', 'load.denied': 'You may not see this', 'load.denied_hint': 'Your role has no right to read it. An admin can grant it.',
  'missing.title': 'There is no such page', 'missing.hint': 'Press / to find a server, an incident or a command.',

  // states
  'state.ok': 'Healthy', 'state.warning': 'Warning', 'state.critical': 'Critical', 'state.affected': 'Affected', 'state.predicted': 'Fails next', 'state.acting': 'In repair', 'state.out': 'Out', 'state.unknown': 'No contact',
  'severity.info': 'Info', 'severity.warning': 'Warning', 'severity.error': 'Error', 'severity.critical': 'Critical',

  // fleet
  'fleet.calm': 'Nothing is wrong.', 'fleet.unwatched': 'Nothing is watched yet.',
  'fleet.headline': ({ open }) => `${n(open, 'incident', 'incidents')} open`, 'fleet.waits': ({ n: k }) => (k === 0 ? 'nothing waits for you' : k === 1 ? '1 action waits for you' : `${k} actions wait for you`),
  'fleet.sub': ({ servers, gpus, racks }) => `${n(servers, 'server', 'servers')}, ${n(gpus, 'GPU', 'GPUs')}, ${n(racks, 'rack', 'racks')}`,
  'fleet.healthy': 'GPUs healthy', 'fleet.used': 'in use', 'fleet.free': 'free', 'fleet.out': 'out', 'fleet.power': 'power', 'fleet.ingest': 'samples/s',
  'fleet.wrong': 'Wrong now', 'fleet.next': 'Fails next', 'fleet.repair': 'In repair', 'fleet.map': 'Fleet map', 'fleet.map_label': 'Map of the fleet. Arrow keys move, Enter opens, n goes to the next problem.',
  'fleet.storm': 'Last {age}', 'fleet.storm_text': ({ alerts, incidents }) => `${n(alerts, 'alert', 'alerts')} became ${n(incidents, 'incident', 'incidents')}`,
  'fleet.empty': 'No server is known yet.', 'fleet.empty_hint': 'Import an inventory, sweep a range of BMC addresses, or start the simulated fleet.',
  'fleet.no_incident': 'No open incident.', 'fleet.no_prediction': 'No part is expected to fail soon.',
  'by.health': 'Health', 'by.temp': 'Temperature', 'by.power': 'Power', 'by.load': 'Load', 'by.risk': 'Risk', 'by.job': 'Job', 'by.label': 'Colour by',
  'map.fit': 'Fit', 'map.in': 'Zoom in', 'map.out': 'Zoom out', 'map.table': 'Table', 'map.only': 'Only problems', 'map.server': 'Server', 'map.state': 'State', 'map.job': 'Job', 'map.free': 'free',

  // incident
  'inc.title': 'Incidents', 'inc.open': 'Open', 'inc.repair': 'In repair', 'inc.closed': 'Closed', 'inc.merged': 'Merged', 'inc.cause': 'Cause', 'inc.confidence': 'Confidence', 'inc.confidence_tip': 'Of all incidents with this confidence, this share names the right cause.',
  'inc.why': 'Why we think so', 'inc.evidence': 'Evidence', 'inc.graph': 'Cause and effect', 'inc.alternatives': 'What else it could be', 'inc.jobs': 'Jobs hit', 'inc.todo': 'What to do', 'inc.opened': 'Opened', 'inc.lasts': 'Lasts', 'inc.servers': 'Servers', 'inc.alerts': 'Alerts', 'inc.n_alerts': ({ n: k }) => n(k, 'alert', 'alerts'),
  'inc.folded': ({ alerts }) => `${n(alerts, 'alert', 'alerts')}, 1 incident`, 'inc.repeat': '(repeats)', 'inc.merged_into': 'Merged into {id}', 'inc.as_text': 'As text', 'inc.axis': 'time since the first alert, logarithmic', 'inc.none': 'No incident matches.', 
  'inc.affects': ({ servers, jobs }) => `${n(servers, 'server', 'servers')}${jobs ? `, ${n(jobs, 'job', 'jobs')}` : ''}`, 'inc.what': 'What happened', 'inc.no_detail': 'The alerts of this incident are no longer kept.', 'inc.fold_line': 'Alerts folded', 'inc.reports_of': '{n} of {of} report', 'inc.quiet': 'silent, as expected',
  

  // what happened, in one sentence
  'sum.power.feed_loss': ({ feed, rack, servers }) => `Feed ${feed} of rack ${rack} lost power; ${n(servers, 'server hangs', 'servers hang')} on it.`,
  'sum.power.psu_failure': 'Power supply {part} of {server} failed.',
  'sum.cooling.air_supply': ({ resource, servers }) => `${resource} no longer cools enough; ${n(servers, 'server runs', 'servers run')} hot.`,
  'sum.cooling.fan_failure': 'Fan {part} of {server} failed.',
  'sum.network.switch_failure': ({ switch: id, servers }) => `Switch ${id} failed; ${n(servers, 'server', 'servers')} lost links.`,
  'sum.network.link_failure': 'The link at {port} is down.',
  'sum.network.link_flap': ({ port, n: k }) => `Link ${port} went down and up ${n(k, 'time', 'times')}.`,
  'sum.network.optics_degraded': 'The optics at {port} degrade.',
  'sum.network.nic_failure': 'Network adapter {part} of {server} failed.',
  'sum.gpu.fallen_off_bus': 'GPU {gpu} of {server} fell off the bus.',
  'sum.gpu.memory_uncorrectable': 'GPU {gpu} of {server} has memory errors that it cannot correct.',
  'sum.gpu.memory_degrading': 'The memory of GPU {gpu} in {server} degrades.',
  'sum.gpu.gsp_hang': 'The firmware of GPU {gpu} in {server} stopped answering.',
  'sum.gpu.nvlink_failure': 'GPU {gpu} of {server} lost NVLink.',
  'sum.gpu.overheating': 'GPU {gpu} of {server} overheats.',
  'sum.nvswitch.failure': '{part} of {server} failed.',
  'sum.host.memory_uncorrectable': 'Memory module {part} of {server} has errors that it cannot correct.',
  'sum.host.cpu_failure': 'Processor {part} of {server} failed.',
  'sum.host.pcie_fault': 'PCIe of {server} has a fatal error at {part}.',
  'sum.host.disk_failure': 'Disk {part} of {server} fails.',
  'sum.host.crash': '{server} crashed.',
  'sum.service.fabric_manager': 'The fabric manager of {server} failed.',
  'sum.bmc.failure': 'The board controller of {server} does not answer.',
  'sum.workload.error': ({ job, servers }) => `${job} crashed on ${n(servers, 'server', 'servers')}; no hardware is at fault.`,
  'sum.unknown': '{resource} reports something critical that no known fault explains.',

  // why
  'say.psus_lost': ({ n: k, feed, rack, within }) => `${n(k, 'power supply', 'power supplies')} on feed ${feed} of rack ${rack} lost input within ${within} s.`,
  'say.common_supplier': 'All of them hang on {resource}. No supply on feed {feed} reports a loss.',
  'say.common': 'All of them hang on {resource}.',
  'say.nvswitches': ({ switches }) => `${n(switches, 'NVSwitch reports', 'NVSwitches report')} dead links to it, as they must.`,
  'say.breaker_open': '{resource} itself reports its main breaker open.',
  'say.repeats': ({ n: k, a, b }) => `${n(k, 'record', 'records')} from ${a} repeat what ${b} said. They count once.`,
  'say.brake': ({ gpus, servers, feed }) => `${n(gpus, 'GPU lowers its clock', 'GPUs lower their clocks')} on ${n(servers, 'server', 'servers')}, since feed ${feed} carries them alone.`,
  'say.overload': '{resource} reports an overload.',
  'say.off_bus': 'GPU {gpu} of {server} no longer answers on PCIe.',
  'say.recovery': 'The driver itself asks for a recovery action (XID 154).',
  'say.neighbours': ({ switches, gpus }) => `${n(switches, 'NVSwitch', 'NVSwitches')} and ${n(gpus, 'other GPU', 'other GPUs')} report dead links to it, as they must.`,
  'say.job_stopped': ({ job, servers }) => `${job} stopped; ${n(servers, 'server reports', 'servers report')} it.`,
  'say.job_owner': '{job} belongs to {owner}.',
  'say.page_fault': ({ n: k, job, within }) => `${n(k, 'GPU reports', 'GPUs report')} an error of the program of ${job} within ${within} s.`,
  'say.cleanup': ({ n: k }) => `${n(k, 'further record is', 'further records are')} the clean-up after it.`,
  'say.no_hardware': ({ gpus }) => `None of the ${n(gpus, 'GPU that reports', 'GPUs that report')} counts a hardware error, so that the job itself is the likeliest cause.`,
  'say.no_fault_seen': 'No fault of hardware that would explain it is known, and no GPU of {job} has reported an error.',
  'say.ports_down': ({ n: k, within }) => `${n(k, 'port lost its link', 'ports lost their link')} within ${within} s.`,
  'say.port_bounces': ({ port, n: k }) => `The link of ${port} went down ${n(k, 'time', 'times')}.`,
  'say.servers_silent': ({ n: k }) => `${n(k, 'server no longer answers', 'servers no longer answer')}.`,
  'say.switch_silent': '{switch} itself no longer answers.',
  'say.hot_inlets': ({ n: k, within }) => `${n(k, 'device reports', 'devices report')} hot inlet air, the last ${within} s after the first.`,
  'say.hot_gpus': ({ n: k }) => `${n(k, 'GPU is', 'GPUs are')} held back by heat.`,
  'say.air_alarm': '{resource} itself reports a failure.',
  'say.record': '{resource} reports {what}.',
  'say.records': ({ n: k, what, parts, within }) => `${n(k, 'report', 'reports')} of ${what} from ${n(parts, 'part', 'parts')} within ${within} s.`,
  'say.before': '{what} was seen {s} s before.',
  'say.returned': ({ n: k }) => `${n(k, 'of the conditions has', 'of the conditions have')} ended.`,
  'say.unexplained': 'No known fault explains it together with what else was seen.',

  // predictions in a sentence
  'predict.falls': ({ part, server, limit, unit, seconds }, f) => `${part} of ${server} falls below ${f.num(limit)} ${unit} in about ${f.dur(seconds)}.`,
  'predict.rises': ({ part, server, limit, unit, seconds }, f) => `${part} of ${server} rises above ${f.num(limit)} ${unit} in about ${f.dur(seconds)}.`,
  'predict.below': '{part} of {server} fell below {limit} {unit}.', 'predict.above': '{part} of {server} rose above {limit} {unit}.', 'predict.averted': '{part} of {server} has moved away from {limit} {unit} again.', 'predict.expired': '{part} of {server} no longer runs towards {limit} {unit}.',

  // faults
  'fault.power.feed_loss': 'Feed lost', 'fault.power.psu_failure': 'Power supply failure', 'fault.cooling.air_supply': 'Cooling lost', 'fault.cooling.fan_failure': 'Fan wears out', 'fault.network.switch_failure': 'Switch failure', 'fault.network.link_failure': 'Link down', 'fault.network.link_flap': 'Link flaps', 'fault.network.optics_degraded': 'Optics degrade', 'fault.network.nic_failure': 'NIC failure', 'fault.gpu.fallen_off_bus': 'GPU off the bus', 'fault.gpu.memory_uncorrectable': 'Uncorrectable GPU memory', 'fault.gpu.memory_degrading': 'GPU memory degrades', 'fault.gpu.gsp_hang': 'GPU firmware hang', 'fault.gpu.nvlink_failure': 'NVLink failure', 'fault.gpu.overheating': 'GPU overheats', 'fault.nvswitch.failure': 'NVSwitch failure', 'fault.host.memory_uncorrectable': 'DIMM fails', 'fault.host.cpu_failure': 'CPU failure', 'fault.host.pcie_fault': 'PCIe fault', 'fault.host.disk_failure': 'Disk fails', 'fault.host.crash': 'Host crash', 'fault.service.fabric_manager': 'Fabric manager stopped', 'fault.bmc.failure': 'BMC failure', 'fault.workload.error': 'Job error', 'fault.unknown': 'Unknown cause',
  'role.cause': 'cause', 'role.affected': 'effect', 'role.silent': 'silent', 'role.context': 'between',
  'link.powers': 'power', 'link.cools': 'cooling', 'link.network': 'network', 'link.nvlink': 'NVLink', 'link.pcie': 'PCIe', 'link.contains': 'part of', 'link.runs': 'runs on',

  // actions
  'act.headline': ({ n: k, proposed }) => (k > 0 ? `${n(k, 'action waits', 'actions wait')} for you.` : proposed > 0 ? `Nothing waits for you; ${n(proposed, 'step is', 'steps are')} proposed.` : 'Nothing waits for you.'),
  'act.proposed': 'Proposed', 'act.waiting': 'Waits for approval', 'act.approved': 'Approved', 'act.running': 'Running', 'act.verifying': 'Verifying', 'act.done': 'Done', 'act.failed': 'Failed', 'act.unknown': 'Outcome not known', 'act.cancelled': 'Cancelled', 'act.refused': 'Not proposed', 'act.would.dry-run': 'Dry run: nothing was changed', 'act.would.observe': 'Observed only', 'act.person': 'For a person', 'act.recommended': 'Recommended',
  'act.approve': 'Approve', 'act.cancel': 'Cancel', 'act.dry_run': 'Dry run', 'act.back': 'Back', 'act.rails': 'Checked before it may run', 'act.rails_n': ({ n: k }) => n(k, 'check', 'checks'), 'act.ladders': 'Ladder of each server', 'act.proposals': 'Proposed steps', 'act.log': 'Latest', 'act.server': 'Server', 'act.attempt': 'attempt {n}', 'act.verified': 'Verified by {by}',
  'act.needs_role': 'Needs the right “approve”.', 'act.offline': 'Off until the server answers.', 'act.none': 'No action is proposed.', 'act.none_any': 'No action yet.', 'act.none_hint': 'An incident that calls for a repair shows its ladder here.', 'act.sent': 'Approved. It starts when its checks hold.', 'act.dry_sent': 'Asked for a dry run. Nothing is changed.', 'act.was_cancelled': 'Asked to cancel.', 'act.irreversible': 'Stops what runs there', 'act.reversible': 'Can be undone',
  'actor.correlator': 'correlator', 'actor.control': 'control', 'actor.policy': 'policy',
  'rung.observe': 'Observe', 'rung.notify_owner': 'Tell the owner', 'rung.cap_power': 'Cap power', 'rung.cordon': 'Cordon', 'rung.drain': 'Drain', 'rung.reset_gpu': 'GPU reset', 'rung.reload_driver': 'Reload driver', 'rung.restart_service': 'Restart service', 'rung.reboot': 'Reboot', 'rung.power_cycle': 'Power cycle', 'rung.ac_cycle': 'AC cycle', 'rung.reset_bmc': 'Reset BMC', 'rung.reinstall': 'Reinstall', 'rung.replace': 'Replace', 'rung.inspect_feed': 'Inspect feed', 'rung.inspect_cooling': 'Inspect cooling', 'rung.inspect_cable': 'Inspect cable', 'rung.clean_optics': 'Clean optics', 'rung.quarantine': 'Quarantine', 'rung.ticket': 'Ticket', 'rung.uncordon': 'Return',
  'do.observe': 'Watch {target}', 'do.notify_owner': 'Tell the owner of {target}', 'do.cap_power': 'Cap the power of {target}', 'do.cordon': 'Keep new jobs off {target}', 'do.drain': 'Drain {target}', 'do.reset_gpu': 'Reset {target}', 'do.reload_driver': 'Reload the driver of {target}', 'do.restart_service': 'Restart the service on {target}', 'do.reboot': 'Reboot {target}', 'do.power_cycle': 'Power cycle {target}', 'do.ac_cycle': 'Cut the outlets of {target}', 'do.reset_bmc': 'Reset the BMC of {target}', 'do.reinstall': 'Reinstall {target}', 'do.replace': 'Replace {target}', 'do.inspect_feed': 'Inspect {target}', 'do.inspect_cooling': 'Inspect the cooling of {target}', 'do.inspect_cable': 'Inspect the cable of {target}', 'do.clean_optics': 'Clean the optics of {target}', 'do.quarantine': 'Keep {target} out of the pool', 'do.ticket': 'Open a ticket for {target}', 'do.uncordon': 'Return {target} to the pool',
  'rail.of': '{value} of {limit}', 'rail.at_least': '{value} ≥ {limit}', 'rail.at_most': '{value} ≤ {limit}', 'rail.holds': 'holds', 'rail.fails': 'does not hold', 'rail.confidence': 'Confidence', 'rail.evidence_age_seconds': 'Age of evidence', 'rail.rungs_before_done': 'Steps before', 'rail.fleet_budget': 'Fleet budget', 'rail.rack_budget': 'Rack budget', 'rail.destructive_per_hour': 'Hourly budget', 'rail.cool_down_seconds': 'Cool-down', 'rail.lease': 'Lease', 'rail.storm_breaker': 'Storm breaker',

  // device
  'dev.forecast': 'Forecast', 'dev.will_fall': '{part} falls below {limit} {unit} in about {age}.', 'dev.will_rise': '{part} rises above {limit} {unit} in about {age}.', 'dev.probability': 'Chance within {age}', 'dev.signals': 'What speaks for it', 'dev.model': 'Model {name}, version {version}', 'dev.log': 'Log', 'dev.inventory': 'Inventory', 'dev.parts': 'Parts', 'dev.open': 'Open here', 'dev.contact': 'Last contact', 'dev.allocated': '{job} of {tenant}', 'dev.limit': 'Limit', 'dev.now': 'now', 'dev.peers': 'peers, median', 'dev.range': 'Range', 'dev.event_lane': 'Events', 'dev.no_forecast': 'No part of this device is expected to fail soon.', 'dev.filter': 'Filter the log', 'dev.no_log': 'Nothing was reported.', 'dev.no_plots': 'Nothing was measured in this range.', 'dev.no_plots_hint': 'Numbers appear when a collector has read the device.',
  'plot.auspex_fan_speed_rpm': 'Fan speed', 'plot.auspex_fan_duty_ratio': 'Fan duty', 'plot.DCGM_FI_DEV_GPU_TEMP': 'GPU temperature', 'plot.DCGM_FI_DEV_MEMORY_TEMP': 'GPU memory temperature', 'plot.DCGM_FI_DEV_GPU_UTIL': 'GPU load', 'plot.DCGM_FI_DEV_POWER_USAGE': 'GPU power', 'plot.DCGM_FI_DEV_SM_CLOCK': 'GPU clock', 'plot.auspex_psu_input_power_watts': 'Supply input', 'plot.auspex_server_power_watts': 'Power', 'plot.auspex_server_inlet_temperature_celsius': 'Inlet temperature', 'plot.auspex_port_in_octets_total': 'Received', 'plot.auspex_port_out_octets_total': 'Sent', 'plot.auspex_port_rx_power_dbm': 'Received light', 'plot.auspex_port_pre_fec_ber_ratio': 'Bit errors before correction', 'plot.auspex_switch_temperature_celsius': 'Temperature',
  'part.server': 'Server', 'part.switch': 'Switch', 'part.pdu': 'PDU', 'part.rack': 'Rack', 'part.crac': 'CRAC', 'part.workload': 'Job', 'part.gpu': 'GPU', 'part.fan': 'Fan', 'part.psu': 'PSU', 'part.nic': 'NIC', 'part.port': 'Port', 'part.nvswitch': 'NVSwitch', 'part.dimm': 'DIMM', 'part.disk': 'Disk', 'part.cpu': 'CPU', 'part.bmc': 'BMC', 'part.pcie_switch': 'PCIe switch',

  // predictions
  'pre.part': 'Part', 'pre.what': 'What', 'pre.when': 'When', 'pre.chance': 'Chance', 'pre.now': 'Now', 'pre.signals': 'What speaks for it', 'pre.job': 'Job at risk', 'pre.empty': 'No part is expected to fail soon.', 'pre.empty_hint': 'A part appears here when its trend runs towards a limit.', 'pre.head': ({ n: k }) => `${n(k, 'part is', 'parts are')} expected to fail.`, 'pre.past': 'Said before', 'pre.came_true': 'came true', 'pre.averted': 'averted', 'pre.expired': 'did not come',

  // explore
  'exp.title': 'Explore', 'exp.query': 'PromQL', 'exp.run': 'Run', 'exp.examples': 'Examples', 'exp.series': ({ n: k }) => n(k, 'series', 'series'), 'exp.first': 'the first {n} are drawn', 'exp.failed': 'The query failed', 'exp.nothing': 'Nothing matches in this range.', 'exp.curl': 'The same with curl', 'exp.last': 'Last', 'exp.min': 'Min', 'exp.max': 'Max', 'exp.label': 'Series', 'exp.empty': 'No metric has arrived yet.',

  // login
  'login.title': 'Log in', 'login.hint': 'Open the address that the server printed when it started, or paste it, its code or a token here.', 'login.secret': 'Address, code or token', 'login.enter': 'Log in', 'login.out': 'Log out',

  // palette and keys
  'pal.placeholder': 'Server, incident, job, page or command', 'pal.none': 'Nothing found.', 'pal.go': 'Go to', 'pal.server': 'Server', 'pal.resource': 'Inventory', 'pal.incident': 'Incident', 'pal.command': 'Command', 'pal.theme': 'Switch between light and dark', 'pal.language': 'Switch to 中文',
  'keys.title': 'Keyboard', 'keys.find': 'Find or do', 'keys.move': 'Next, previous', 'keys.open': 'Open', 'keys.back': 'Back', 'keys.problem': 'Next, previous problem', 'keys.zoom': 'Zoom', 'keys.approve': 'Approve (asks first)', 'keys.dry': 'Dry run', 'keys.this': 'This list', 'keys.evidence': 'Fold, unfold evidence',
};
