// 中文。键与 en.js 相同。
export const zh = {
  // shell
  'nav.fleet': '机群', 'nav.incidents': '事件', 'nav.predictions': '预测', 'nav.actions': '处置', 'nav.explore': '查询', 'nav.more': '更多', 'nav.label': '页面', 'nav.skip': '跳到正文',
  'shell.find': '查找或执行', 'shell.live': '实时', 'shell.connecting': '连接中', 'shell.lost': '失联',
  'shell.lost_text': ({ for: age }) => `与服务器失去联系已 ${age}。当前显示最后已知的状态；恢复联系之前，会改变状态的按钮停用。`,
  'shell.stale': '此部分未能刷新，显示的是最后已知的状态。',
  'shell.simulated': '模拟机群', 'shell.theme': '明暗', 'shell.language': '语言', 'shell.keys': '键盘', 
  'mode.observe': '观察', 'mode.dry-run': '演练', 'mode.approve': '审批', 'mode.enforce': '执行', 'mode.label': '模式', 'mode.observe.tip': 'Auspex 只提出步骤，不发送任何操作。', 'mode.dry-run.tip': 'Auspex 对真实机器规划每一步，但不发送任何操作。', 'mode.approve.tip': 'Auspex 提出每一步，由人批准。', 'mode.enforce.tip': 'Auspex 在预算内自行修复。',
  'unit.d': '天', 'unit.h': '小时', 'unit.min': '分钟', 'unit.s': '秒',
  'in': '{age}后', 'all': '全部', 'more': '另有 {n} 项', 'close': '关闭',
  'load.wait': '加载中', 'load.error': '无法加载', 'load.retry': '重试', 'load.denied': '无权查看', 'load.denied_hint': '你的角色无权读取，可由管理员授予。',
  'missing.title': '页面不存在', 'missing.hint': '按 / 查找服务器、事件或命令。',

  // states
  'state.ok': '健康', 'state.warning': '警告', 'state.critical': '严重', 'state.affected': '受影响', 'state.predicted': '即将故障', 'state.acting': '修复中', 'state.out': '停用', 'state.unknown': '失联',
  'severity.info': '信息', 'severity.warning': '警告', 'severity.error': '错误', 'severity.critical': '严重',

  // fleet
  'fleet.calm': '一切正常。', 'fleet.unwatched': '尚未监视任何设备。',
  'fleet.comma': '，', 'fleet.headline': '{open} 个未结事件', 'fleet.waits': ({ n }) => (n === 0 ? '没有待你处理的事项' : `${n} 项处置等你批准`),
  'fleet.sub': '{servers} 台服务器，{gpus} 张 GPU，{racks} 个机柜',
  'fleet.healthy': 'GPU 健康', 'fleet.used': '使用中', 'fleet.free': '空闲', 'fleet.out': '停用', 'fleet.power': '功率', 'fleet.ingest': '样本/秒',
  'fleet.wrong': '当前问题', 'fleet.next': '即将故障', 'fleet.repair': '修复中', 'fleet.map': '机群图', 'fleet.map_label': '机群图。方向键移动，回车打开，n 跳到下一个问题。',
  'fleet.storm': '最近 {age}', 'fleet.storm_text': '{alerts} 条告警归为 {incidents} 个事件',
  'fleet.empty': '资产清单中还没有服务器。', 'fleet.empty_hint': '用“auspex cmdb import”导入资产清单，或用“auspex run --demo”启动模拟机群。',
  'fleet.no_incident': '没有未结事件。', 'fleet.no_prediction': '近期预计没有部件故障。',
  'by.health': '健康', 'by.temp': '温度', 'by.power': '功率', 'by.load': '负载', 'by.risk': '风险', 'by.job': '作业', 'by.label': '着色',
  'map.fit': '适合窗口', 'map.in': '放大', 'map.out': '缩小', 'map.table': '表格', 'map.only': '只看问题', 'map.server': '服务器', 'map.state': '状态', 'map.job': '作业', 'map.free': '空闲',

  // incident
  'inc.against': '不符之处', 'inc.would_change': '什么会改变判断', 'inc.similar': '以往', 'inc.cured_by': '由此恢复', 'inc.not_cured': 'Auspex 未处置', 'inc.match.resource': '同一部件', 'inc.match.model': '同一型号', 'inc.match.fault': '同类故障',
  'inc.title': '事件', 'inc.open': '未结', 'inc.repair': '修复中', 'inc.closed': '已结', 'inc.merged': '已合并', 'inc.cause': '原因', 'inc.confidence': '置信度', 'inc.confidence_tip': '在置信度相同的所有事件中，有这么大比例指对了原因。',
  'inc.why': '判断依据', 'inc.evidence': '证据', 'inc.graph': '因果关系', 'inc.alternatives': '其他可能', 'inc.jobs': '受影响的作业', 'inc.todo': '建议处置', 'inc.opened': '发生', 'inc.lasts': '持续', 'inc.servers': '服务器', 'inc.alerts': '告警', 'inc.n_alerts': '{n} 条告警',
  'inc.folded': '{alerts} 条告警，1 个事件', 'inc.repeat': '（重复）', 'inc.merged_into': '已并入 {id}', 'inc.as_text': '文字形式', 'inc.axis': '距首条告警的时间（对数轴）', 'inc.none': '没有符合条件的事件。', 
  'inc.affects': ({ servers, jobs }) => `${servers} 台服务器${jobs ? `，${jobs} 个作业` : ''}`, 'inc.what': '经过', 'inc.no_detail': '该事件的告警已不再保留。', 'inc.fold_line': '已折叠告警', 'inc.reports_of': '{of} 中 {n} 个上报', 'inc.quiet': '无异常，符合预期',

  // predictions in a sentence
  'predict.falls': ({ part, server, limit, unit, seconds }, f) => `${server} 的 ${part} 预计约 ${f.dur(seconds)}后降到 ${f.num(limit)} ${unit} 以下。`,
  'predict.rises': ({ part, server, limit, unit, seconds }, f) => `${server} 的 ${part} 预计约 ${f.dur(seconds)}后升到 ${f.num(limit)} ${unit} 以上。`,
  'predict.falls_default': ({ part, server, limit, unit, seconds }, f) => `${server} 的 ${part} 预计约 ${f.dur(seconds)}后降到 ${f.num(limit)} ${unit} 以下（默认限值：设备未给出）。`,
  'predict.rises_default': ({ part, server, limit, unit, seconds }, f) => `${server} 的 ${part} 预计约 ${f.dur(seconds)}后升到 ${f.num(limit)} ${unit} 以上（默认限值：设备未给出）。`,
  'predict.below_default': '{server} 的 {part} 已降到 {limit} {unit} 以下（默认限值：设备未给出）。', 'predict.above_default': '{server} 的 {part} 已升到 {limit} {unit} 以上（默认限值：设备未给出）。',
  'predict.below': '{server} 的 {part} 已降到 {limit} {unit} 以下。', 'predict.above': '{server} 的 {part} 已升到 {limit} {unit} 以上。', 'predict.averted': '{server} 的 {part} 已远离 {limit} {unit}。', 'predict.expired': '{server} 的 {part} 不再趋向 {limit} {unit}。',

  'role.cause': '原因', 'role.affected': '结果', 'role.silent': '无异常', 'role.context': '途经',
  'link.powers': '供电', 'link.cools': '制冷', 'link.network': '网络', 'link.nvlink': 'NVLink', 'link.pcie': 'PCIe', 'link.contains': '组成部分', 'link.runs': '运行于',

  // actions
  'act.headline': ({ n: k, proposed }) => (k > 0 ? `${k} 项处置等你批准。` : proposed > 0 ? `没有待你批准的处置；已提出 ${proposed} 个步骤。` : '没有待你批准的处置。'),
  'act.proposed': '已提出', 'act.waiting': '等待批准', 'act.approved': '已批准', 'act.running': '执行中', 'act.verifying': '验证中', 'act.done': '完成', 'act.failed': '失败', 'act.unknown': '结果未知', 'act.cancelled': '已取消', 'act.refused': '不建议', 'act.would.dry-run': '演练：未做任何改动', 'act.would.observe': '仅观察', 'act.person': '需人工', 'act.recommended': '建议',
  'act.approve': '批准', 'act.cancel': '取消', 'act.dry_run': '演练', 'act.back': '返回', 'act.rails': '执行前的检查', 'act.rails_n': '{n} 项检查', 'act.ladders': '各服务器的阶梯', 'act.proposals': '提出的步骤', 'act.server': '服务器', 'act.attempt': '第 {n} 次', 'act.verified': '已验证。{by}',
  'act.needs_role': '需要“批准”权限。', 'act.offline': '服务器恢复前停用。', 'act.none': '没有提出任何处置。', 'act.none_any': '还没有处置。', 'act.none_hint': '需要修复的事件会在这里显示其阶梯。', 'act.sent': '已批准；检查通过后开始。', 'act.dry_sent': '已请求演练，不做任何改动。', 'act.was_cancelled': '已请求取消。', 'act.irreversible': '会中断其上运行的任务', 'act.reversible': '可撤销',
  'act.then': '之后', 'act.older': '显示更早的', 'act.budgets': '预算', 'act.budgets_none': '控制尚未统计预算。', 'act.level': ({ used, limit, reserved }) => `${used}/${limit}${reserved ? `，预留 ${reserved}` : ''}`, 'act.rate': ({ used, limit, reserved }) => `每小时 ${used}/${limit}${reserved ? `，预留 ${reserved}` : ''}`, 'act.blocked': '不允许', 'act.budget_key_used': '已用', 'act.budget_key_reserved': '为待批准的步骤预留', 'act.rack_rest': '其余每个机柜：0/{n}。', 'act.breaker': '风暴断路器', 'act.breaker_closed': '放行', 'act.breaker_open': '已拦下所有步骤', 'act.breaker_text': ({ ladders, limit, window_seconds }, f) => `${f.dur(window_seconds)}内会中断任务的阶梯 ${ladders}/${limit}`, 'act.counted': '{age}前统计', 'act.audit': '审计', 'act.audit_none': '还没有任何决定或步骤的记录。', 'act.audit_denied': '操作员和管理员可以查看谁做了什么。', 'act.chain_holds': '哈希链完整，{rows} 行', 'act.chain_broken': '哈希链在第 {row} 行断开', 'act.chain_broken_text': '第 {row} 行写入后被改动过。以下各行可能不实。', 'act.chain_tip': '每一行带有自身和上一行的哈希。{age}前检查过所有行。',
  'scope.fleet': '机群', 'scope.rack': '机柜 {name}', 'scope.hour': '中断任务的步骤',
  'audit.line': '{verb}：{what}', 'audit.propose': '提出', 'audit.refuse': '不建议', 'audit.dry-run': '演练', 'audit.observe': '重新检查', 'audit.cancel': '取消', 'audit.skip': '跳过', 'audit.wait': '暂缓', 'audit.expire': '等待超时', 'audit.fail': '判定失败', 'audit.sent': '发出', 'audit.intend': '决定', 'audit.unknown': '结果未知', 'audit.done': '验证', 'audit.escalate': '转交人工', 'audit.withdraw': '撤回', 'audit.approve': '批准', 'audit.effect': '看到效果', 'audit.create': '创建', 'audit.replace': '重新创建', 'audit.revoke': '吊销', 'audit.issue': '签发', 'audit.start': '开始', 'audit.end': '结束', 'audit.request': '请求',
  'actor.auspex': 'Auspex', 'actor.correlator': '关联分析', 'actor.control': '控制', 'actor.policy': '策略',
  'rung.observe': '观察', 'rung.notify_owner': '通知所有者', 'rung.cap_power': '限制功率', 'rung.cordon': '停派', 'rung.drain': '排空', 'rung.reset_gpu': 'GPU 复位', 'rung.reload_driver': '重载驱动', 'rung.restart_service': '重启服务', 'rung.reboot': '重启', 'rung.power_cycle': '断电重启', 'rung.ac_cycle': '交流断电', 'rung.reset_bmc': '复位 BMC', 'rung.reinstall': '重装', 'rung.replace': '更换', 'rung.inspect_feed': '检查供电', 'rung.inspect_cooling': '检查制冷', 'rung.inspect_cable': '检查线缆', 'rung.clean_optics': '清洁光模块', 'rung.quarantine': '隔离', 'rung.ticket': '工单', 'rung.uncordon': '归还',
  'do.observe': '观察 {target}', 'do.notify_owner': '通知 {target} 的所有者', 'do.cap_power': '限制 {target} 的功率', 'do.cordon': '不再向 {target} 派新作业', 'do.drain': '排空 {target}', 'do.reset_gpu': '复位 {target}', 'do.reload_driver': '重载 {target} 的驱动', 'do.restart_service': '重启 {target} 上的服务', 'do.reboot': '重启 {target}', 'do.power_cycle': '对 {target} 断电重启', 'do.ac_cycle': '关闭再打开 {target} 的插座', 'do.reset_bmc': '复位 {target} 的 BMC', 'do.reinstall': '重装 {target}', 'do.replace': '更换 {target}', 'do.inspect_feed': '检查 {target}', 'do.inspect_cooling': '检查 {target} 的制冷', 'do.inspect_cable': '检查 {target} 的线缆', 'do.clean_optics': '清洁 {target} 的光模块', 'do.quarantine': '将 {target} 留在资源池之外', 'do.ticket': '为 {target} 开工单', 'do.uncordon': '让 {target} 回到资源池', 'do.token': '令牌 {target}', 'do.login_code': '{target} 的登录码', 'do.session': '{target} 的会话', 'do.route': '{target}',
  'rail.of': '{value}/{limit}', 'rail.at_least': '{value} ≥ {limit}', 'rail.at_most': '{value} ≤ {limit}', 'rail.holds': '满足', 'rail.fails': '不满足', 'rail.confidence': '置信度', 'rail.evidence_age_seconds': '证据时效', 'rail.rungs_before_done': '之前的步骤', 'rail.fleet_budget': '机群预算', 'rail.rack_budget': '机柜预算', 'rail.destructive_per_hour': '每小时预算', 'rail.cool_down_seconds': '冷却时间', 'rail.lease': '租约', 'rail.storm_breaker': '风暴断路器', 'rail.still_drained': '仍在排空', 'rail.quiet_seconds': '修复仍有效', 'rail.own_evidence': '我们的采集器已看到', 'rail.maintenance_window': '不在维护窗口',

  // what a step says of itself
  'step.for_person': '需要人工处理。',
  'step.for_person_after': ({ kind, server }, f) => `${f.word('rung', kind)}没有奏效；${server} 留在资源池之外，请人接手。`,
  'step.observed_only': '仅观察。',
  'step.decided': '已决定，等待应答。',
  'step.sent': '已发出，等待效果。',
  'step.sent_unanswered': '已发出，应答未知：{error}',
  'step.resumed': '重启后接续；不会重复发送。',
  'step.waits_approval': '等待人工批准。',
  'step.listens': '等待收到 {server} 的读数，以便发现它何时中断。',
  'step.held': ({ rail, why }, f) => `被“${f.word('rail', rail)}”拦下：${why}`,
  'step.cancelled_by': ({ who }, f) => `已由 ${f.word('actor', who)} 取消。`,
  'step.cause_gone': '事件已结，或已改判为其他原因。',
  'step.other_cause': '事件已改判为其他原因。',
  'step.incident_closed': '事件已结。',
  'step.no_driver': ({ kind }, f) => `没有配置“${f.word('rung', kind)}”的驱动。`,
  'step.cannot_look': '没有驱动能读回状态。',
  'step.not_ours': '留在资源池之外：它不是由 Auspex 摘下的。',
  'step.nobody_came': ({ seconds }, f) => `${f.dur(seconds)}内未获批准，或有检查未通过。`,
  'step.no_effect': ({ seconds, saw }, f) => `${f.dur(seconds)}内没有效果。${saw}`,
  'step.outcome_unknown': '结果未知。{saw}',
  'step.nothing_seen': '没有观察到效果。',
  'step.peer_error': '对方的应答：{error}',
  'step.tried': '演练：{what}',
  'step.would_drain': '将排空 {server}；它目前为 {states}。',
  'step.drained_already': '{server} 已经排空：{reason}',
  'step.would_return': '修复得到验证后，将让 {server} 回到资源池。',
  'step.scheduler_says': '调度器报告 {states}。',
  'step.would_cycle_on': '将通过 BMC 对 {server} 断电重启；目前通电。',
  'step.would_cycle_off': '将通过 BMC 对 {server} 断电重启；目前断电。',
  'step.power_off': '电源已断开。',
  'step.no_reset': '电源接通，此后未见复位。',
  'step.power_back': '电源断开后已恢复。',
  'step.reset_at': 'BMC 报告在 {time} 复位。',
  'step.both': '{first}{second}',
  'step.effect_seen': ({ saw, part, seconds }, f) => `${saw}还须在 ${f.dur(seconds)}内持续读到 ${part}，且没有故障迹象。`,
  'step.not_cured': '故障仍在。{saw}',
  'step.part_silent': '{collector} 读得到 {server} 的其他部件，但读不到 {part}。',
  'step.source_silent': '报告 {part} 故障的来源此后没有读到它。',
  'step.silent_again': '{collector} 曾读到 {part}，随后又读不到了。',
  'step.still_raised': '{part} 上的“{type}”仍未解除。',
  'step.sign_since': '修复之后，{part} 于 {time} 又报告“{type}” {code}。',
  'step.not_long': ({ part, collector, seconds }, f) => `${collector} 读到 ${part} 且没有故障迹象，但只有 ${f.dur(seconds)}。`,
  'step.stands_still': '{collector} 反复给出 {part} 的相同数值，不能说明它在工作。',
  'step.never_silent': '{server} 重启期间，{collector} 从未中断：它在重放录下的数据。',
  'step.restart_unheard': '{server} 重启时控制进程没有在听，也没有能耗计数器表明 {collector} 读到的 {part} 是重启之后的。',
  'step.not_restarted': '{collector} 读到的 {part} 能耗计数没有随 {server} 重启而归零：它在重放录下的数据。',
  'step.wrong_pace': '{collector} 读到的 {part} 的时间与我们的时间不同步：它在重放录下的数据。',
  'step.lives': ({ part, collector, seconds }, f) => `${collector} 持续读到 ${part}，${f.dur(seconds)}内没有故障迹象。`,

  // what was checked before it
  'check.confidence': '原因的置信度为 {value} %，策略要求 {limit} %。',
  'check.evidence_age': ({ seconds }, f) => `证据是 ${f.dur(seconds)}前的。`,
  'check.rungs_done': '之前的 {of} 步中，{done} 步已验证。',
  'check.rungs_planned': '之前的 {of} 步中，{done} 步已计划。',
  'check.fleet_budget': 'Auspex 摘下的服务器将达 {held} 台，上限 {limit} 台。',
  'check.rack_budget': '{rack} 中由 Auspex 摘下的服务器将达 {held} 台，上限 {limit} 台。',
  'check.hourly_rate': '最近一小时已有 {n} 次此类步骤。',
  'check.cool_down': ({ seconds, server }, f) => `${server} 上次此类步骤已过去 ${f.dur(seconds)}。`,
  'check.first_such': '{server} 上此前没有此类步骤。',
  'check.breaker': ({ n, seconds }, f) => `${f.dur(seconds)}内开始了 ${n} 条会中断任务的阶梯。`,
  'check.lease_ours': 'Auspex 持有 {server} 的租约。',
  'check.lease_others': '{server} 的租约由他人持有。',
  'check.seen_by': '{part} 的故障由我们自己的采集器（{source}）观察到。',
  'check.seen_by_nobody': '只有外部提交的告警指向 {part}，我们的采集器都没有看到它的故障，因此须由人批准。',
  'check.in_window': ({ server, window, by, until }, fmt) => `${server} 处于 ${by} 申报的维护窗口 ${window} 之内，直到 ${fmt.stamp(Date.parse(until))} UTC；其间 Auspex 不在此处修复。`, 'check.no_window': '{server} 没有处于维护窗口。',
  'check.vouched_for': '我们的采集器都没有看到 {part} 的故障；{who} 仍批准了这一步。',

  // device
  'dev.forecast': '预测', 'dev.will_fall': '{part} 预计约 {age}后降到 {limit} {unit} 以下。', 'dev.will_rise': '{part} 预计约 {age}后升到 {limit} {unit} 以上。', 'dev.probability': '{age}内的概率', 'dev.signals': '依据', 'dev.model': '模型 {name}，版本 {version}', 'dev.log': '日志', 'dev.inventory': '资产', 'dev.parts': '部件', 'dev.open': '此处未结', 'dev.contact': '最近联系', 'dev.allocated': '{tenant} 的 {job}', 'dev.limit': '限值', 'dev.limit_default': '默认限值', 'dev.default_hint': '限值为默认值：设备未给出。', 'dev.now': '现在', 'dev.peers': '同类中位数', 'dev.range': '时间范围', 'dev.event_lane': '日志', 'dev.no_forecast': '近期预计没有部件故障。', 'dev.filter': '筛选日志', 'dev.no_log': '没有上报任何事件。', 'dev.no_plots': '此范围内没有读数。', 'dev.no_plots_hint': '采集器读到该设备后，这里会出现曲线。',
  'bound.upper_fatal': '致命', 'bound.upper_critical': '严重', 'bound.upper_caution': '警告', 'bound.lower_caution': '警告', 'bound.lower_critical': '严重', 'bound.lower_fatal': '致命', 'bound.range_max': '最大', 'bound.range_min': '最小',
  'plot.auspex_fan_speed_rpm': '风扇转速', 'plot.auspex_fan_duty_ratio': '风扇占空比', 'plot.DCGM_FI_DEV_GPU_TEMP': 'GPU 温度', 'plot.DCGM_FI_DEV_MEMORY_TEMP': '显存温度', 'plot.DCGM_FI_DEV_GPU_UTIL': 'GPU 负载', 'plot.DCGM_FI_DEV_POWER_USAGE': 'GPU 功率', 'plot.DCGM_FI_DEV_SM_CLOCK': 'GPU 频率', 'plot.auspex_psu_input_power_watts': '电源输入', 'plot.auspex_server_power_watts': '功率', 'plot.auspex_server_inlet_temperature_celsius': '进风温度', 'plot.auspex_port_in_octets_total': '接收', 'plot.auspex_port_out_octets_total': '发送', 'plot.auspex_port_rx_power_dbm': '接收光功率', 'plot.auspex_port_pre_fec_ber_ratio': '纠错前误码率', 'plot.auspex_switch_temperature_celsius': '温度',
  'part.server': '服务器', 'part.switch': '交换机', 'part.pdu': 'PDU', 'part.rack': '机柜', 'part.crac': '空调', 'part.workload': '作业', 'part.gpu': 'GPU', 'part.fan': '风扇', 'part.psu': '电源', 'part.nic': '网卡', 'part.port': '端口', 'part.nvswitch': 'NVSwitch', 'part.dimm': '内存条', 'part.disk': '硬盘', 'part.cpu': 'CPU', 'part.bmc': 'BMC', 'part.pcie_switch': 'PCIe 交换芯片',

  // predictions
  'pre.part': '部件', 'pre.what': '现象', 'pre.when': '时间', 'pre.chance': '概率', 'pre.now': '当前', 'pre.signals': '依据', 'pre.job': '受威胁作业', 'pre.empty': '近期预计没有部件故障。', 'pre.empty_hint': '当部件的趋势走向限值时，会出现在这里。', 'pre.head': '预计有 {n} 个部件故障。', 'pre.past': '以往预测', 'pre.came_true': '应验', 'pre.averted': '已避免', 'pre.expired': '未发生',
  'pre.trust': '可靠吗？', 'pre.window': ({ seconds }, f) => `最近 ${f.dur(seconds)}`, 'pre.verdict': '已结束的 {ended} 个预测中，{hits} 个应验。', 'pre.too_little': ({ ended }) => (ended === 0 ? '还没有预测结束，无从判断。' : `只有 ${ended} 个预测结束，还不足以判断。`), 'pre.hits': '应验', 'pre.false': '误报', 'pre.missed': '没有预测的故障', 'pre.averted_n': '已避免', 'pre.lead': '提前量中位数', 'pre.said': '预测与实际', 'pre.said_range': '预测概率 {from} – {to}', 'pre.said_of': '{ended} 个中 {hits} 个', 'pre.said_none': '记录了最初概率的预测还没有结束的。', 'pre.averted_tip': '读数已远离限值，例如经过修复。既不算对，也不算错。',

  // explore
  'exp.title': '查询', 'exp.query': 'PromQL', 'exp.run': '执行', 'exp.examples': '示例', 'exp.series': '{n} 条序列', 'exp.first': '只画前 {n} 条', 'exp.failed': '查询失败', 'exp.nothing': '此范围内没有匹配的序列。', 'exp.curl': '用 curl 查同样的内容', 'exp.last': '最新', 'exp.min': '最小', 'exp.max': '最大', 'exp.label': '序列', 'exp.empty': '还没有收到任何指标。',

  // login
  'login.title': '登录', 'login.hint': '打开 Auspex 启动时打印的地址，或把该地址、其中的登录码或令牌粘贴到这里。', 'login.secret': '地址、登录码或令牌', 'login.enter': '登录', 'login.out': '退出',

  // palette and keys
  'pal.placeholder': '服务器、事件、作业、页面或命令', 'pal.none': '没有找到。', 'pal.go': '前往', 'pal.server': '服务器', 'pal.resource': '设备清单', 'pal.incident': '事件', 'pal.command': '命令', 'pal.theme': '切换明暗', 'pal.language': 'Switch to English',
  'keys.title': '键盘', 'keys.find': '查找或执行', 'keys.move': '下一个、上一个', 'keys.open': '打开', 'keys.back': '返回', 'keys.problem': '下一个、上一个问题', 'keys.zoom': '缩放', 'keys.approve': '批准（会再确认）', 'keys.dry': '演练', 'keys.this': '本列表', 'keys.evidence': '折叠、展开证据',

  // 人对原因的判断，以及原因的准确程度
  'cor.title': '原因对吗？', 'cor.none': '还没有人判断。判断结果会显示原因的准确程度，并供系统学习。', 'cor.right': '正确', 'cor.cause': '另有原因', 'cor.no_incident': '不是事件', 'cor.is.right': '原因正确。', 'cor.is.cause': '另有原因：', 'cor.is.no_incident': '这不是一个事件。', 'cor.by': '{who}，{when} UTC', 'cor.change': '修改', 'cor.withdraw': '撤回', 'cor.ask': '原因是什么？', 'cor.said': '系统认为是 {resource}，{fault}，置信度 {p}。', 'cor.verdict': '判断', 'cor.resource': '资源或作业', 'cor.fault': '故障', 'cor.choose': '请选择', 'cor.other': '其他', 'cor.note': '备注', 'cor.save': '保存判断',
  'audit.correct': '判断', 'audit.learn': '更改学习参数', 'do.right': '事件 {target} 的原因正确', 'do.cause': '事件 {target} 另有原因', 'do.no_incident': '{target} 不是事件', 'do.withdrawn': '撤回对事件 {target} 的判断', 'do.activate_parameters': '启用 {target}',
  'edge.title': '什么引发什么', 'edge.open': '{n} 条提议待决定', 'edge.lead': '由本站点事件先后统计得出。未经人接受，不影响任何原因判断；接受后立即生效，可以撤回。', 'edge.none': '没有提议。', 'edge.none_hint': '有事件关闭时，系统每天从最近几个月的告警中查找一次。立即查找：',
  'edge.is.open': '待决定', 'edge.is.accepted': '已接受', 'edge.is.declined': '已拒绝', 'edge.is.withdrawn': '已撤回', 'edge.do.accepted': '接受', 'edge.do.declined': '拒绝', 'edge.do.withdrawn': '撤回',
  'edge.says': '{fault}：{cases} 次中有 {shown} 次，{lag}后出现在{where}。', 'edge.lift': '是偶然情况的 {lift} 倍（同样时长内偶然概率 {chance}）；{from}至{to}共 {events} 个事件。', 'edge.no_cause': '没有故障记录对应此原因，无法接受。', 'edge.version': '学习参数第 {version} 版',
  'edge.examples': '{n} 个例子', 'edge.when': '时间', 'edge.part': '原因位置', 'edge.shown': '出现', 'edge.lag': '延迟', 'edge.events': '事件',
  'edge.ask.accepted': '接受为该原因的征兆？', 'edge.ask.declined': '拒绝该提议？', 'edge.ask.withdrawn': '撤回接受？', 'edge.means.accepted': '出现时支持该故障，并归入其事件；不出现时没有任何影响。', 'edge.means.declined': '只是习惯或偶然：原因判断不变，以后仍可接受。', 'edge.means.withdrawn': '恢复以前的判断方式，未结束的事件重新判断。', 'edge.fault': '属于哪种故障', 'edge.force': '生效：出现在{where}，概率 {shows}，部件比例 {share}，平均延迟 {lag}。', 'edge.reason': '理由',
  'edge.itself': '部件本身', 'edge.step.up': '所属的{kind}', 'edge.step.down': '其中的{kind}', 'edge.step.powers': '所供电的{kind}', 'edge.step.cools': '所冷却的{kind}', 'edge.step.feeds': '所馈电的{kind}', 'edge.step.powered': '为其供电的{kind}', 'edge.step.cooled': '为其冷却的{kind}', 'edge.step.fed': '为其馈电的{kind}', 'edge.step.net': '与其相连的{kind}', 'edge.step.nvlink': '同 NVLink 的{kind}', 'edge.step.pcie': '同 PCIe 的{kind}', 'edge.step.jobs': '其上的作业', 'edge.step.loose': '其中没有链路的{kind}', 'do.edge_accepted': '接受提议 {target}', 'do.edge_declined': '拒绝提议 {target}', 'do.edge_withdrawn': '撤回提议 {target}',
  'his.title': '原因有多准？', 'his.judged': '一年内结束 {closed} 个，已判断 {judged} 个', 'his.none': '还没有人判断过事件。', 'his.none_hint': '请在事件页面说明原因是否正确。大约二十个判断之后，比例才有意义。', 'his.verdict': '已判断的 {judged} 个事件中，{right} 个原因正确。', 'his.too_few': '已判断的 {judged} 个事件中，{right} 个原因正确：数量太少，比例没有意义。', 'his.rate': '正确', 'his.rate_tip': '{judged} 个中 {right} 个', 'his.p50': '找到正确原因的中位时间', 'his.p95': '其中 95 % 不超过', 'his.error': '校准误差', 'his.error_tip': '置信度与实际正确比例的平均差距。', 'his.no_incident': '不是事件', 'his.curve': '置信度与实际正确', 'his.said': '所说置信度，%', 'his.true': '实际正确，%', 'his.how': '每个点是置信度相近的事件，点越大事件越多；落在虚线上表示说得准。', 'his.over': '过于自信：平均所说 {said}，实际正确 {right}。', 'his.under': '过于保守：平均所说 {said}，实际正确 {right}。', 'his.fits': '置信度可靠：平均所说 {said}，实际正确 {right}。', 'his.took': '中位时间', 'his.bin': '所说 {from} – {to}：{n} 个中 {right} 个正确', 'his.fault': '实际故障', 'his.right': '正确', 'his.at_once': '立即', 'his.learned': '正在使用学习参数第 {version} 版。', 'his.unlearned': '未使用学习参数。',

  // 已申报的工作
  'mnt.title': '维护', 'mnt.declare': '申报维护', 'mnt.means': '其间，此类工作造成的现象（失联、重启、链路断开、断电）不算事件，也不在此处修复。其他情况照常报告，未恢复的设备也会报告。', 'mnt.resources': '服务器、交换机、机柜或 PDU', 'mnt.from': '开始时间，UTC（留空为现在）', 'mnt.lasts': '时长', 'mnt.reason': '工作内容', 'mnt.none': '没有申报维护。', 'mnt.until': '到 {until} UTC，还有 {age}', 'mnt.between': '{from} 至 {until} UTC', 'mnt.by': '{who}，{id}', 'mnt.end': '立即结束', 'mnt.withdraw': '撤回', 'mnt.is.open': '进行中', 'mnt.is.to_come': '即将开始', 'mnt.is.over': '已结束',
  'audit.declare_maintenance': '申报', 'audit.end_maintenance': '结束', 'do.maintenance': '{target} 的维护', 'audit.import': '导入', 'do.inventory': '来源 {target} 的资产清单',
};
