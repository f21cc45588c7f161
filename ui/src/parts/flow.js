// A workflow step by step, and what a person may do about it: go on where it failed, cancel it, clean again.
import { html, useState } from '../lib/html.js';
import { post, refresh, remove } from '../lib/api.js';
import { name, t, textOf } from '../lib/i18n.js';
import { href } from '../lib/router.js';
import { useMay } from './ladder.js';
import { Question } from './question.js';
import { Shape } from './status.js';

const STEPS = { pending: ['later', 'out'], running: ['acting', 'action'], completed: ['done', 'ok'], failed: ['failed', 'critical'], skipped: ['skipped', 'out'] };
const STAGES = { pending: 'pending', running: 'running', success: 'completed', failed: 'failed', timeout: 'failed' };

export const StepShape = ({ status, size }) => html`<${Shape} kind=${STEPS[status][0]} token=${STEPS[status][1]} size=${size} label=${t(`alo.step.${status}`)} />`;

/** Whether a workflow goes on. */
export const goesOn = (w) => w?.status === 'pending' || w?.status === 'running';

/** The actions of an installation, in the words of who does them. */
const Stages = ({ stages }) => html`<ol class="ladder">${stages.map((s) => {
  const status = STAGES[s.state] ?? 'pending';
  return html`<li class=${`is-${status}`}><${StepShape} status=${status} /><span>${s.name}</span>${s.message && html`<span class="rung-note mono">${s.message}</span>`}</li>`;
})}</ol>`;

/** Workflows of a server alone need the permission to operate it too, but for one that only looks. */
export function useMayRun(type) {
  const allocate = useMay('allocate');
  const operate = useMay('operate');
  return allocate ?? (['bring_up', 'config'].includes(type) ? operate : null);
}

/** `last` is that it is on the page of its server, and no other was made there since: only then it goes on where it failed. */
export function Flow({ flow: w, last }) {
  const denied = useMayRun(w.type);
  const mayCancel = useMay('allocate');
  const [told, setTold] = useState('');
  const [asking, setAsking] = useState(false);
  const path = `workflows/${encodeURIComponent(w.id)}`;
  const changed = () => refresh(['workflows', 'servers']);
  const send = (to, body, text) => post(to, body).then(() => { setTold(text ? t(text) : ''); changed(); }, (e) => setTold(`${e.message} ${e.hint ?? ''}`));
  const off = { disabled: Boolean(denied), title: denied ?? undefined };
  const alone = last && !w.allocation_id;
  const next = w.steps.find((s) => s.status === 'failed') ?? w.steps.find((s) => s.status !== 'completed');
  return html`${!last && html`<h3><${StepShape} status=${w.status} size=${12} /> ${t(`alo.flow.${w.type}`)} <a class="mono" href=${href(`servers/${encodeURIComponent(w.server)}`)}>${w.server}</a>${w.attempt > 1 && html` <span class="dim">${t('act.attempt', { n: w.attempt })}</span>`}</h3>`}
    ${w.steps.length > 0 && html`<ol class="ladder">${w.steps.map((s) => html`<li class=${`is-${s.status}`}><${StepShape} status=${s.status} /><span class="rung">${name('rung', s.name)}</span><span class="rung-note">${textOf(s.sentence, s.message) || t(`alo.step.${s.status}`)}${s.stages && html`<${Stages} stages=${s.stages} />`}</span></li>`)}</ol>`}
    ${w.status_reason && !w.steps.some((s) => s.message && w.status_reason.endsWith(s.message)) && html`<p class="text-2">${textOf(w.status_sentence, w.status_reason)}</p>`}
    ${w.type === 'cleanup' && w.status === 'failed' && html`<button class="btn small" ...${off} onClick=${() => send('workflows/cleanup', { allocation_id: w.allocation_id, server_id: w.server_id }, 'alo.asked_again')}>${t('alo.clean_again', { server: w.server })}</button>`}
    ${alone && w.status === 'failed' && html`<button class="btn small" ...${off} onClick=${() => send(`${path}/resume`)}>${next ? t('flow.resume_at', { step: name('rung', next.name) }) : t('flow.resume')}</button>`}
    ${alone && goesOn(w) && html`<button class="btn small" disabled=${Boolean(mayCancel)} title=${mayCancel ?? undefined} onClick=${() => { setTold(''); setAsking(true); }}>${t('flow.cancel')}</button>`}
    ${told && html`<p class="feedback" role="status">${told}</p>`}
    ${asking && html`<${Question} id="flow-cancel" title=${t('flow.cancel_what', { server: w.server })} button=${t('flow.cancel_now', { server: w.server })} onClose=${() => setAsking(false)} onDone=${() => { setAsking(false); changed(); }} send=${() => remove(path)}><p class="text-2">${t('flow.cancel_means')}</p><//>`}`;
}
