// From found to ready: what a bring-up would do, told before; then what it does, step by step.
import { html, useRef, useState } from '../lib/html.js';
import { newKey, post, refresh, useApi, useTry } from '../lib/api.js';
import { clock } from '../lib/clock.js';
import { fmt, known, name, t, textOf } from '../lib/i18n.js';
import { Flow, StepShape, goesOn, useMayRun } from './flow.js';
import { Note, Panel } from './panel.js';
import { Question } from './question.js';
import { Shape } from './status.js';
import { NO_TEMPLATE, Template, installOf, unsaid } from './template.js';

const LIFE = { discovered: ['later', 'warning'], provisioning: ['acting', 'action'], ready: ['ok', 'ok'], error: ['failed', 'critical'], retired: ['out', 'out'] };
const FROM = ['discovered', 'error', 'ready'];
const SOON_MS = 3000; // no event tells what a workflow does
const EVERY_MS = 30_000;

export const STATUSES = Object.keys(LIFE);

/** Where a server is in its life, since when, and why; `brief` where the reason is told below. */
export const Life = ({ server: s, brief }) => html`<span class=${`c-${LIFE[s.status][1]}`}><${Shape} kind=${LIFE[s.status][0]} token=${LIFE[s.status][1]} size=${11} /> ${t(`inv.is.${s.status}`)}</span>${s.status_since && html` <span class="dim num">${t('alo.for', { age: fmt.dur((clock.now() - Date.parse(s.status_since)) / 1000) })}</span>`}${s.status_reason && !brief && html`<br /><span class="text-2">${textOf(s.status_sentence, s.status_reason)}</span>`}${s.hold && html`<br /><span class="c-warning">${t('inv.held', { why: s.hold, who: s.hold_by })}</span>`}`;

/** What a step will do, in a sentence. */
function willDo(step) {
  const id = `will.${step.name}`;
  return known(id) ? t(id, step.with ?? {}) : '';
}

/** The question before it: with which template, and what will be done. */
export function BringUp({ server, status, onClose, onDone }) {
  const [install, setInstall] = useState(NO_TEMPLATE);
  const key = useRef(newKey());
  const body = { type: 'bring_up', server_id: server, ...installOf(install) };
  const would = useTry('workflows?dry_run=true', body);
  const lacks = unsaid(would.error, install);
  const send = () => post('workflows', body, key.current).then((w) => { refresh(['workflows', 'servers']); return w; });
  return html`<${Question} id="bring-up" title=${t('bup.what', { server })} button=${t('bup.now', { server })} off=${!would.answer || would.asking} onClose=${onClose} onDone=${onDone} send=${send}>
    <p class="text-2">${t(status === 'ready' ? 'bup.means_ready' : 'bup.means')}</p>
    <div class="form"><${Template} id="bup-template" value=${install} none=${t('bup.no_template')} onChange=${(v) => { key.current = newKey(); setInstall(v); }} /></div>
    <h3>${t('bup.would')}</h3>
    <section class="would" aria-live="polite" aria-busy=${would.asking ? 'true' : 'false'} aria-label=${t('bup.would')}>
      ${lacks.length > 0 ? html`<p class="dim">${t('tpl.say', { names: lacks.join(t('fleet.comma')) })}</p>` : would.error ? html`<p class="c-critical">${would.error.message} ${would.error.hint}</p>` : would.answer ? html`<ol class="ladder">${would.answer.steps.map((s) => html`<li><${StepShape} status="pending" /><span class="rung">${name('rung', s.name)}</span><span class="rung-note">${willDo(s)}</span></li>`)}</ol>` : html`<p class="dim">${t('load.wait')}</p>`}
    </section><//>`;
}

/** The button, where a server can be brought up; who may not is told who may. */
export function BringUpButton({ server, status, onBegun }) {
  const denied = useMayRun('bring_up');
  const [asking, setAsking] = useState(false);
  if (!FROM.includes(status)) return null;
  return html`<button class="btn small" disabled=${Boolean(denied)} title=${denied ?? undefined} onClick=${() => setAsking(true)}>${t('bup.button')}</button>
    ${asking && html`<${BringUp} server=${server} status=${status} onClose=${() => setAsking(false)} onDone=${() => { setAsking(false); onBegun?.(t('bup.begun', { server })); }} />`}`;
}

/** A server's state of life and its last workflow, which is open while it goes on or has failed. */
export function Workflows({ server: s }) {
  const path = `workflows?server=${encodeURIComponent(s.id)}&limit=1`;
  const { data } = useApi(path, { every: EVERY_MS });
  const flow = data?.items[0];
  useApi(goesOn(flow) ? path : null, { every: SOON_MS });
  const [told, setTold] = useState('');
  const free = !s.allocation && !goesOn(flow) && FROM.includes(s.status);
  const denied = useMayRun('bring_up');
  return html`<${Panel} title=${t('bup.title')} id="workflows" class="making-ready" aside=${free && html`<${BringUpButton} server=${s.name} status=${s.status} onBegun=${setTold} />`}>
    <p><${Life} server=${s} brief=${Boolean(flow) && s.status_reason?.includes(flow.id)} /></p>
    ${free && denied && html`<p class="dim">${denied}</p>`}
    ${told && goesOn(flow) && html`<p class="feedback" role="status">${told}</p>`}
    ${flow && html`<details open=${flow.status !== 'completed'}><summary><${StepShape} status=${flow.status} size=${11} /> ${t('bup.last', { what: name('flow.is', flow.type), how: `${t(`alo.step.${flow.status}`)}${flow.attempt > 1 ? ` (${t('act.attempt', { n: flow.attempt })})` : ''}`, age: fmt.dur((clock.now() - Date.parse(flow.updated_at)) / 1000) })}</summary><${Flow} flow=${flow} last /></details>`}
    ${data && !flow && !free && html`<${Note} title=${t('alo.no_flow')} />`}<//>`;
}
