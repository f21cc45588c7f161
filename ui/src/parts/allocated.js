// Who has what: live allocations with what is done to make them ready, and those that have ended.
import { cls, html, useRef, useState } from '../lib/html.js';
import { newKey, post, put, useApi } from '../lib/api.js';
import { clock } from '../lib/clock.js';
import { fmt, name, t, textOf } from '../lib/i18n.js';
import { href } from '../lib/router.js';
import { Flow } from './flow.js';
import { useMay } from './ladder.js';
import { Pages } from './pages.js';
import { Await, Note, Panel } from './panel.js';
import { Question } from './question.js';
import { Shape } from './status.js';

const NAMED = 3;
const SHOWN = 50;
const FLOWS = 20;
const PAGE = 10;
const SOON_MS = 5000; // no event tells what a workflow does
const SHAPES = { pending: ['acting', 'action'], active: ['ok', 'ok'], completed: ['done', 'out'], failed: ['failed', 'critical'] };
const URGENT = ['failed', 'running', 'pending', 'completed'];
const COLUMNS = 7;

const Server = ({ id }) => html`<a class="mono" href=${href(`servers/${encodeURIComponent(id)}`)}>${id}</a>`;
const stamp = (iso) => `${fmt.stamp(Date.parse(iso))} UTC`;

/** When an allocation ends, in words. */
export const untilText = (a) => (a.end_time ? t('alo.ends', { when: stamp(a.end_time), age: fmt.dur((Date.parse(a.end_time) - clock.now()) / 1000) }) : t('alo.open_end'));

/** What an allocation is called: its purpose, or the beginning of its id. */
export const titleOf = (a) => a.purpose || t('alo.unnamed', { id: a.id.slice(0, 8) });

const reasonOf = (a) => textOf(a.status_sentence, a.status_reason);
const shapeOf = (a) => (a.status === 'pending' && a.booked ? ['waiting', 'text'] : a.status === 'failed' && a.status_reason === 'cancelled' ? ['failed', 'out'] : SHAPES[a.status] ?? SHAPES.pending);

function Status({ a }) {
  const [kind, token] = shapeOf(a);
  if (token === 'out' && a.status === 'failed') return html`<span class="c-out"><${Shape} kind=${kind} token="out" size=${11} /> ${reasonOf(a)}</span>`;
  return html`<span class=${`c-${token}`}><${Shape} kind=${kind} token=${token} size=${11} /> ${a.status === 'pending' && a.booked ? t('alo.booked', { when: stamp(a.start_time) }) : t(`alo.is.${a.status}`)}</span>${reasonOf(a) && html`<br /><span class="text-2">${reasonOf(a)}</span>`}`;
}

function Servers({ a }) {
  const more = a.servers.length - NAMED;
  return html`${a.servers.slice(0, NAMED).map((s, k) => html`${k > 0 && ', '}<${Server} id=${s} />`)}${more > 0 && html` <span class="dim num">${t('alo.and_more', { n: more })}</span>`}<br /><span class="dim num">${a.exclusive ? t('alo.whole', { n: a.servers.length, gpus: a.gpu_ids.length }) : t('alo.gpus', { n: a.gpu_ids.length })}</span>`;
}

/** What is done for an allocation, which of its hardware is ill, and what could be had instead. */
function Detail({ a }) {
  const answer = useApi(`allocations/${encodeURIComponent(a.id)}/status`, { every: SOON_MS });
  return html`<${Await} of=${answer} height=${60}>${({ workflows, servers, replacement = [] }) => {
    const flows = [...workflows].sort((x, y) => URGENT.indexOf(x.status) - URGENT.indexOf(y.status) || x.server.localeCompare(y.server));
    const ill = servers.flatMap((s) => s.gpus).filter((g) => g.status === 'error');
    return html`${ill.length > 0 && html`<p class="c-critical"><${Shape} kind="critical" size=${11} /> ${t('alo.ill', { names: ill.slice(0, NAMED).map((g) => g.name).join(', '), n: ill.length, more: ill.length - NAMED })}</p>`}
      ${replacement.length > 0 && html`<p>${t('alo.instead', { names: replacement.map((p) => p.server).join(', ') })}</p>`}
      ${a.template && html`<p class="text-2">${t('alo.template', { template: a.template, version: a.template_version })}</p>`}
      ${a.report && html`<p class="text-2">${t('alo.said', { report: a.report })}</p>`}
      ${flows.length === 0 && html`<p class="dim">${t('alo.no_flow')}</p>`}
      <ul class="flows">${flows.slice(0, FLOWS).map((w) => html`<li key=${w.id}><${Flow} flow=${w} /></li>`)}</ul>
      ${flows.length > FLOWS && html`<p class="dim">${t('more', { n: flows.length - FLOWS })}</p>`}
      <p class="dim mono">${a.id}</p>`;
  }}<//>`;
}

const pathOf = (a) => `allocations/${encodeURIComponent(a.id)}`;
const WEEK_MS = 7 * 86_400_000;

function Extend({ a, onClose, onDone }) {
  const [end, setEnd] = useState(new Date((Date.parse(a.end_time ?? '') || clock.now()) + WEEK_MS).toISOString().slice(0, 16));
  return html`<${Question} id="extend" title=${t('alo.extend_what', { what: titleOf(a) })} button=${t('alo.extend_to')} onClose=${onClose} onDone=${() => onDone(t('alo.extended'))} send=${() => put(pathOf(a), { end_time: `${end}:00Z` })}>
    <p class="text-2">${untilText(a)}</p>
    <div class="form"><label for="alo-end">${t('alo.new_end')}</label><input id="alo-end" class="field" type="datetime-local" required value=${end} onInput=${(e) => setEnd(e.target.value)} /></div><//>`;
}

function End({ a, onClose, onDone }) {
  const [report, setReport] = useState('');
  const key = useRef(newKey());
  return html`<${Question} id="end" title=${t('alo.end_what', { what: titleOf(a) })} button=${t('alo.end_now', { what: titleOf(a) })} onClose=${onClose} onDone=${() => onDone(t('alo.ended'))} send=${() => post(`${pathOf(a)}/stop`, report ? { report } : {}, key.current)}>
    <p class="text-2">${t(a.status === 'pending' ? 'alo.end_pending' : 'alo.end_means', { n: a.servers.length })}</p>
    <div class="form"><label for="alo-report">${t('alo.report')}</label><textarea id="alo-report" class="field" rows="3" maxlength="4000" value=${report} onInput=${(e) => setReport(e.target.value)}></textarea></div><//>`;
}

function Row({ a, live }) {
  const [open, setOpen] = useState(false);
  const [asking, setAsking] = useState(null);
  const [told, setTold] = useState('');
  const denied = useMay('allocate');
  const off = { disabled: Boolean(denied), title: denied ?? undefined };
  const again = () => post(`${pathOf(a)}/start`).then(() => setTold(t('alo.asked_again')), (e) => setTold(`${e.message} ${e.hint ?? ''}`));
  const done = (text) => { setAsking(null); setTold(text); };
  return html`<tr class="row"><td class="wrap"><button class="fold" aria-expanded=${open ? 'true' : 'false'} onClick=${() => setOpen(!open)}>${titleOf(a)}</button></td>
      <td>${a.team ? html`${a.team}<br /><span class="dim">${a.user}</span>` : a.user}</td><td class="wrap"><${Servers} a=${a} /></td><td class="wrap"><${Status} a=${a} /></td>
      <td class="num">${live ? (a.end_time ? html`${t('in', { age: fmt.dur((Date.parse(a.end_time) - clock.now()) / 1000) })}<br /><span class="dim">${stamp(a.end_time)}</span>` : t('alo.open_end')) : a.ended_at && html`<span title=${stamp(a.ended_at)}>${t('alo.ago', { age: fmt.dur((clock.now() - Date.parse(a.ended_at)) / 1000) })}</span>${!a.returned && html`<br /><span class="c-warning">${t('alo.not_returned')}</span>`}`}</td>
      <td class="does">${live && html`<button class="btn small" ...${off} onClick=${() => setAsking('extend')}>${t('alo.extend')}</button> <button class="btn small" ...${off} onClick=${() => setAsking('end')}>${t('alo.end')}</button>`}${a.status === 'failed' && html`<button class="btn small" ...${off} onClick=${again}>${t('alo.again')}</button>`}
        ${told && html`<p class="feedback" role="status">${told}</p>`}${asking === 'extend' && html`<${Extend} a=${a} onClose=${() => setAsking(null)} onDone=${done} />`}${asking === 'end' && html`<${End} a=${a} onClose=${() => setAsking(null)} onDone=${done} />`}</td></tr>
    ${open && html`<tr class="detail"><td colspan=${COLUMNS}><${Detail} a=${a} /></td></tr>`}`;
}

const Rows = ({ items, live, head = true }) => html`<div class="scroll"><table class=${cls('table tight allocations', !live && 'quiet')}>${head && html`<thead><tr><th>${t('alo.purpose')}</th><th>${t('alo.who')}</th><th>${t('alo.what')}</th><th>${t('alo.status')}</th><th>${t(live ? 'alo.until' : 'alo.ended_at')}</th><th aria-label=${t('alo.do')}></th></tr></thead>`}<tbody>${items.map((a) => html`<${Row} key=${a.id} a=${a} live=${live} />`)}</tbody></table></div>`;

/** Live allocations; `next` says that there are more than were read. */
export function Live({ items, next }) {
  const [shown, setShown] = useState(SHOWN);
  const denied = useMay('allocate');
  return html`<${Panel} title=${t('alo.live')} id="live" flush aside=${html`<span class="dim num">${fmt.num(items.length)}</span>`}>
    ${denied && items.length > 0 && html`<p class="dim why-off">${denied}</p>`}
    ${items.length === 0 ? html`<${Note} title=${t('alo.none')} />` : html`<${Rows} items=${items.slice(0, shown)} live />`}
    ${items.length > shown ? html`<button class="btn small older" onClick=${() => setShown(shown + SHOWN)}>${t('agt.more')}</button>` : next && html`<${Note} title=${t('alo.only_first', { n: items.length })} />`}<//>`;
}

/** Allocations that have ended, the last made first. */
export const Ended = () => html`<${Panel} title=${t('alo.past')} id="past" flush>
  <${Pages} path=${`allocations?ended=true&limit=${PAGE}`} height=${80}>${({ items }, first) => (items.length === 0 ? first && html`<${Note} title=${t('alo.none_ended')} />` : html`<${Rows} items=${items} head=${first} />`)}<//><//>`;
