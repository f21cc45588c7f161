// What is the system doing to my machines, and what may it do?
import { cls, html } from '../lib/html.js';
import { useApi } from '../lib/api.js';
import { clock, useNow } from '../lib/clock.js';
import { firstSentence, fmt, name, textOf, t } from '../lib/i18n.js';
import { href } from '../lib/router.js';
import { Enrolment } from '../parts/enrolment.js';
import { ActionCard, detailOf, doText, isDry, shapeOf, stateText } from '../parts/ladder.js';
import { Maintenance } from '../parts/maintenance.js';
import { Pages } from '../parts/pages.js';
import { Await, Note, Panel } from '../parts/panel.js';
import { Shape, stepShape } from '../parts/status.js';

/** What is done to machines, in the order of the columns; what only a person does is no rung of theirs. */
const RUNGS = ['drain', 'configure_gpu', 'reset_gpu', 'reload_driver', 'restart_service', 'reset_bmc', 'reboot', 'power_cycle', 'ac_cycle', 'reinstall', 'validate', 'uncordon', 'quarantine',
  'cap_power', 'uncap_power', 'power_on', 'power_off', 'nmi', 'set_boot', 'set_bios', 'set_raid', 'set_network', 'update_firmware', 'wipe', 'install'];
const SHOWN = 100;
const PAGE = 100;
const AUDIT_PAGE = 30;
const MOST_CELLS = 20;

/** The ladders: for each server and cause, the newest action of each rung; what was asked for is one of its own. */
function laddersOf(items) {
  const ladders = new Map();
  for (const action of items) { // newest first
    const key = `${action.server || action.target} ${action.incident || action.prediction || action.id}`;
    if (!ladders.has(key)) ladders.set(key, { server: action.server || action.target, incident: action.incident, steps: new Map(), newest: action });
    const { steps } = ladders.get(key);
    if (!steps.has(action.kind)) steps.set(action.kind, action);
  }
  return [...ladders.values()].filter(({ steps }) => RUNGS.some((rung) => steps.has(rung)));
}

/** Whether a ladder has given its server back: what it has not taken of its rungs is not needed. */
const endedWell = (newest) => newest.kind === 'uncordon' && newest.state === 'done' && !isDry(newest);

/** Servers down, rungs across, those of any ladder here: where each stands. A rung that its policy has not is left blank. */
function Matrix({ ladders }) {
  const rungs = RUNGS.filter((rung) => ladders.some(({ steps, newest }) => steps.has(rung) || newest.ladder?.includes(rung)));
  return html`<div class="scroll"><table class="matrix">
  <thead><tr><th>${t('act.server')}</th>${rungs.map((r) => html`<th scope="col">${t(`rung.${r}`)}</th>`)}<th></th></tr></thead>
  <tbody>${ladders.map(({ server, incident, steps, newest }) => { const rest = endedWell(newest) ? 'unneeded' : 'later'; const why = detailOf(newest) || textOf(newest.sentence, firstSentence(newest.why)); return html`<tr>
    <th scope="row"><a class="mono" href=${href(`servers/${server}`)}>${server}</a>${incident ? html`<a class="dim" href=${href(`incidents/${incident}`)}>${incident}</a>` : newest.prediction ? html`<a class="dim" href=${href('predictions')}>${t('act.foretold')}</a>` : html`<small class="dim">${newest.actor}</small>`}</th>
    ${rungs.map((rung) => {
      const step = steps.get(rung);
      if (!step && newest.ladder && !newest.ladder.includes(rung)) return html`<td class="is-none"></td>`;
      const [kind, token] = step ? shapeOf(step) : stepShape(rest);
      const text = step ? `${t(`rung.${rung}`)}: ${stateText(step)}` : `${t(`rung.${rung}`)}: ${t(`act.${rest}`)}`;
      return html`<td class=${`is-${step ? (isDry(step) && step.state !== 'refused' ? 'dry' : step.state) : rest}`}><span class="stop" title=${step ? detailOf(step) || textOf(step.sentence, step.why) : text}><${Shape} kind=${kind} token=${token} size=${14} label=${text} /></span></td>`;
    })}
    <td class="now"><span class=${`c-${shapeOf(newest)[1]}`}>${stateText(newest)}</span><small class="dim" title=${why}>${why}</small></td>
  </tr>`; })}</tbody></table></div>`;
}

/** A budget: what is used, what is held for approvals, and what is free, as cells that can be counted. */
function Gauge({ level }) {
  const label = t(`scope.${level.scope}`, { name: level.name });
  const taken = level.used + level.reserved;
  const cells = Math.min(MOST_CELLS, Math.max(level.limit, taken));
  const of = (count) => Math.round((count / Math.max(1, level.limit, taken)) * cells);
  const text = level.limit === 0 ? t('act.blocked') : t(level.scope === 'hour' ? 'act.rate' : 'act.level', level);
  return html`<li class=${cls('gauge', taken >= level.limit && 'full')}><span>${label}</span>
    <span class="gauge-cells" role="meter" aria-valuenow=${level.used} aria-valuemin="0" aria-valuemax=${level.limit} aria-valuetext=${text} aria-label=${label}>${Array.from({ length: cells }, (_, k) => html`<i class=${k < of(level.used) ? 'used' : k < of(taken) ? 'held' : ''}></i>`)}</span>
    <span class="dim num">${text}</span></li>`;
}

function Budgets() {
  const answer = useApi('actions/budgets', { every: 15_000 });
  useNow(15_000);
  return html`<${Panel} title=${t('act.budgets')} id="budgets" aside=${answer.data?.levels.length > 0 && html`<span class="dim">${t('act.counted', { age: fmt.dur((clock.now() - Date.parse(answer.data.time)) / 1000) })}</span>`}><${Await} of=${answer}>${({ levels, breaker, rack_limit: rest }) => (levels.length === 0 ? html`<${Note} title=${t('act.budgets_none')} />` : html`
    <p class=${cls('breaker', breaker?.tripped && 'c-critical')}><${Shape} kind=${breaker?.tripped ? 'failed' : 'done'} token=${breaker?.tripped ? 'critical' : 'ok'} /><b>${t('act.breaker')}</b> ${t(breaker?.tripped ? 'act.breaker_open' : 'act.breaker_closed')}<span class="dim">${t('act.breaker_text', breaker ?? {})}</span></p>
    <ul class="gauges">${levels.filter((l) => l.scope !== 'hour').map((l) => html`<${Gauge} level=${l} />`)}<li class="dim">${t('act.rack_rest', { n: rest })}</li></ul>
    <ul class="gauges">${levels.filter((l) => l.scope === 'hour').map((l) => html`<${Gauge} level=${l} />`)}</ul>
    <p class="key"><i class="swatch taken"></i><span>${t('act.budget_key_used')}</span><i class="swatch held"></i><span>${t('act.budget_key_reserved')}</span></p>`)}<//><//>`;
}

const Chain = ({ chain }) => (chain.holds
  ? html`<span class="c-ok" title=${t('act.chain_tip', { age: fmt.dur((clock.now() - Date.parse(chain.checked)) / 1000) })}><${Shape} kind="done" token="ok" size=${11} /> ${t('act.chain_holds', chain)}</span>`
  : html`<span class="c-critical"><${Shape} kind="failed" token="critical" size=${11} /> ${t('act.chain_broken', { row: chain.broken_at })}</span>`);

/** Who did what, the newest first. */
function Audit() {
  const path = `audit?limit=${AUDIT_PAGE}`;
  const { data, error } = useApi(path);
  return html`<${Panel} title=${t('act.audit')} id="audit" flush aside=${data && !error && html`<${Chain} chain=${data.chain} />`}>
    ${error?.status === 403 ? html`<${Note} title=${t('load.denied')} hint=${t('act.audit_denied')} />` : html`<${Pages} path=${path}>${({ items, chain }, first) => html`
    ${first && !chain.holds && html`<p class="stale-line c-critical" role="alert">${t('act.chain_broken_text', { row: chain.broken_at })}</p>`}
    ${first && items.length === 0 ? html`<${Note} title=${t('act.audit_none')} />` : html`<ul class="audit">${items.map((row) => html`<li><time class="num dim" dateTime=${row.time} title=${fmt.stamp(Date.parse(row.time))}>${(clock.now() - Date.parse(row.time) < 86_400_000 ? fmt.clock : fmt.day)(Date.parse(row.time))}</time><span title=${row.action}><b>${name('actor', row.actor)}</b> ${t('audit.line', { verb: name('audit', row.verb), what: doText(row.kind, row.subject || row.action) })}</span><code class="dim" title=${`SHA-256 ${row.hash}`}>${row.hash.slice(0, 8)}</code></li>`)}</ul>`}`}<//>`}<//>`;
}

export function ActionsPage() {
  const waiting = useApi(`actions?state=waiting&limit=${SHOWN}`);
  const list = `actions?limit=${PAGE}`;
  const answer = useApi(list);
  return html`<${Await} of=${waiting.data === undefined ? waiting : answer} height=${500}>${() => {
    const items = answer.data?.items ?? [];
    const asked = waiting.data.items;
    const newest = new Map();
    for (const a of items) newest.set(a.incident, Math.max(newest.get(a.incident) ?? 0, Date.parse(a.created)));
    const proposed = items.filter((a) => a.state === 'proposed' || (isDry(a) && a.state !== 'waiting' && a.state !== 'cancelled')).sort((a, b) => newest.get(b.incident) - newest.get(a.incident) || (a.incident ?? '').localeCompare(b.incident ?? '') || a.rung - b.rung);
    return html`
    <h1>${t('act.headline', { n: asked.length, proposed: proposed.length })}</h1>
    <div class="actions-grid">
      <div class="column">
        ${asked.length > 0 && html`<${Panel} title=${t('act.waiting')} id="waiting" aside=${html`<span class="dim num">${asked.length}</span>`}><div class="actions-list">${asked.map((a, k) => html`<${ActionCard} key=${a.id} action=${a} first=${k === 0} wide />`)}</div><//>`}
        ${proposed.length > 0 && html`<${Panel} title=${t('act.proposals')} id="proposed" aside=${html`<span class="dim num">${proposed.length}</span>`}><div class="actions-list">${proposed.map((a) => html`<${ActionCard} key=${a.id} action=${a} wide />`)}</div><//>`}
        <${Enrolment} />
        <${Panel} title=${t('act.ladders')} id="ladders" flush><${Pages} path=${list}>${(page, first) => {
          const ladders = laddersOf(page.items);
          return ladders.length > 0 ? html`<${Matrix} ladders=${ladders} />` : first && html`<${Note} title=${t('act.none_any')} hint=${t('act.none_hint')} />`;
        }}<//><//>
      </div>
      <div class="column side"><${Budgets} /><${Maintenance} /><${Audit} /></div>
    </div>`;
  }}<//>`;
}
