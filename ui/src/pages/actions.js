// What is the system doing to my machines, and what may it do?
import { cls, html, useMemo } from '../lib/html.js';
import { useApi } from '../lib/api.js';
import { firstSentence, fmt, name, say, t } from '../lib/i18n.js';
import { href } from '../lib/router.js';
import { ActionCard, actionText, isDry, shapeOf, stateText } from '../parts/ladder.js';
import { Await, Note, Panel } from '../parts/panel.js';
import { Shape, stepShape } from '../parts/status.js';

const RUNGS = ['drain', 'reset_gpu', 'reboot', 'power_cycle', 'ac_cycle', 'reinstall', 'uncordon', 'quarantine'];
const SHOWN = 100;

/** The ladders: for each server and cause, the newest action of each rung. */
function laddersOf(items) {
  const ladders = new Map();
  for (const action of items) { // newest first
    const key = `${action.server} ${action.incident || action.reason}`;
    if (!ladders.has(key)) ladders.set(key, { server: action.server, incident: action.incident, steps: new Map(), newest: action });
    const { steps } = ladders.get(key);
    if (!steps.has(action.kind)) steps.set(action.kind, action);
  }
  return [...ladders.values()].filter(({ steps }) => RUNGS.some((rung) => steps.has(rung))).slice(0, SHOWN);
}

/** Servers down, rungs across: where each ladder stands. */
const Matrix = ({ ladders }) => html`<div class="scroll"><table class="matrix">
  <thead><tr><th>${t('act.server')}</th>${RUNGS.map((r) => html`<th scope="col">${t(`rung.${r}`)}</th>`)}<th></th></tr></thead>
  <tbody>${ladders.map(({ server, incident, steps, newest }) => html`<tr>
    <th scope="row"><a class="mono" href=${href(`servers/${server}`)}>${server}</a>${incident && html`<a class="dim" href=${href(`incidents/${incident}`)}>${incident}</a>`}</th>
    ${RUNGS.map((rung) => {
      const step = steps.get(rung);
      const dry = step && isDry(step) && step.state !== 'refused';
      const [kind, token] = step ? shapeOf(step) : stepShape('later');
      const text = step ? `${t(`rung.${rung}`)}: ${stateText(step)}` : t(`rung.${rung}`);
      return html`<td class=${`is-${step ? (dry ? 'dry' : step.state) : 'later'}`}><span class="stop" title=${step ? say(step.sentence, step.detail || step.why) : undefined}><${Shape} kind=${kind} token=${token} size=${14} label=${text} /></span></td>`;
    })}
    <td class="now"><span class=${`c-${stepShape(newest.state)[1]}`}>${stateText(newest)}</span><small class="dim">${(newest.state !== 'waiting' && newest.detail) || say(newest.sentence, firstSentence(newest.why))}</small></td>
  </tr>`)}</tbody></table></div>`;

/** All actions, the newest change first. */
const Log = ({ items }) => html`<${Panel} title=${t('act.log')} id="log" flush>
  <ul class="audit">${items.map((a) => {
    const [kind, token] = shapeOf(a);
    return html`<li><time class="num dim">${fmt.clock(Date.parse(a.time))}</time><span><${Shape} kind=${kind} token=${token} size=${11} /> <b>${actionText(a)}</b> <span class=${cls('dim')}>${stateText(a)}${a.actor ? ` · ${name('actor', a.actor)}` : ''}</span></span></li>`;
  })}</ul><//>`;

export function ActionsPage() {
  const answer = useApi('actions');
  const items = answer.data?.items ?? [];
  const ladders = useMemo(() => laddersOf(items), [answer.data]);
  const log = useMemo(() => [...items].sort((a, b) => Date.parse(b.time) - Date.parse(a.time)).slice(0, SHOWN), [answer.data]);
  return html`<${Await} of=${answer} height=${500}>${() => {
    const newest = new Map();
    for (const a of items) newest.set(a.incident, Math.max(newest.get(a.incident) ?? 0, Date.parse(a.created)));
    const waiting = items.filter((a) => a.state === 'waiting');
    const proposed = items.filter((a) => a.state === 'proposed' || (isDry(a) && a.state !== 'waiting' && a.state !== 'cancelled')).sort((a, b) => newest.get(b.incident) - newest.get(a.incident) || a.incident?.localeCompare(b.incident) || a.rung - b.rung).slice(0, SHOWN);
    return html`
    <h1>${t('act.headline', { n: waiting.length, proposed: proposed.length })}</h1>
    <div class="actions-grid">
      <div class="column">
        ${waiting.length > 0 && html`<${Panel} title=${t('act.waiting')} id="waiting" aside=${html`<span class="dim num">${waiting.length}</span>`}><div class="actions-list">${waiting.map((a, k) => html`<${ActionCard} key=${a.id} action=${a} first=${k === 0} wide />`)}</div><//>`}
        ${proposed.length > 0 && html`<${Panel} title=${t('act.proposals')} id="proposed" aside=${html`<span class="dim num">${proposed.length}</span>`}><div class="actions-list">${proposed.map((a) => html`<${ActionCard} key=${a.id} action=${a} wide />`)}</div><//>`}
        <${Panel} title=${t('act.ladders')} id="ladders" flush>${ladders.length === 0 ? html`<${Note} title=${t('act.none_any')} hint=${t('act.none_hint')} />` : html`<${Matrix} ladders=${ladders} />`}<//>
      </div>
      <div class="column side">${log.length > 0 && html`<${Log} items=${log} />`}</div>
    </div>`;
  }}<//>`;
}
