// Sweeps for board controllers: how far they are, and what they have found.
import { html, useRef, useState } from '../lib/html.js';
import { newKey, post, remove, useApi } from '../lib/api.js';
import { fmt, t, textOf } from '../lib/i18n.js';
import { Res } from './bits.js';
import { BringUpButton } from './bringup.js';
import { useMay } from './ladder.js';
import { Pages } from './pages.js';
import { Await, Note, Panel } from './panel.js';
import { Question } from './question.js';
import { Shape } from './status.js';

const PAGE = 5;
const FINDS = 20;
const EVERY_MS = 3000;
const SHAPES = { waiting: ['waiting', 'text'], running: ['acting', 'action'], completed: ['done', 'ok'], failed: ['failed', 'critical'], cancelled: ['failed', 'out'] };
const FOUND = { discovered: ['predicted', 'action'], known: ['done', 'ok'] };
const live = (d) => d.status === 'waiting' || d.status === 'running';

function Find({ find: f, waiting, onRegister }) {
  const denied = useMay('inventory');
  const [told, setTold] = useState('');
  const [kind, token] = FOUND[f.status] ?? ['skipped', 'warning'];
  return html`<li class="find-row"><${Shape} kind=${kind} token=${token} size=${11} /><span><span class="mono">${f.address}</span> ${f.result === 'found' ? html`${[f.manufacturer, f.model].filter(Boolean).join(' ')} <span class="mono">${f.serial_number ?? ''}</span> <span class="dim num">${t('alo.gpus', { n: f.gpus.length })}</span>` : html`<span class="c-warning">${t(`inv.result.${f.result}`)}</span> <span class="text-2">${f.message}</span>`}
    ${f.server ? html`<br /><span class="dim">${t('inv.is_known')}</span> <${Res} id=${f.server} />${waiting.has(f.server) && html` <${BringUpButton} server=${f.server} status="discovered" onBegun=${setTold} />`}${told && html`<p class="feedback" role="status">${told}</p>`}` : f.status === 'discovered' && html`<br /><button class="btn small" disabled=${Boolean(denied)} title=${denied ?? undefined} onClick=${() => onRegister(f)}>${t('inv.register')}</button>`}</span></li>`;
}

function Sweep({ sweep, waiting, onRegister }) {
  const [open, setOpen] = useState(live(sweep));
  const answer = useApi(open ? `discoveries/${encodeURIComponent(sweep.id)}?limit=${FINDS}` : null, { every: live(sweep) ? EVERY_MS : 0 });
  const denied = useMay('inventory');
  const d = answer.data?.discovery ?? sweep;
  const [kind, token] = SHAPES[d.status];
  return html`<li class="conflict"><h3><${Shape} kind=${kind} token=${token} size=${11} label=${t(`inv.sweep.${d.status}`)} /> <button class="fold mono" aria-expanded=${open ? 'true' : 'false'} onClick=${() => setOpen(!open)}>${d.ranges.join(', ')}</button></h3>
    <p class="dim num">${t('inv.found', { asked: d.asked, of: d.addresses, found: d.found, refused: d.refused + d.unreadable })} · ${fmt.stamp(Date.parse(d.created_at))} UTC, ${d.created_by}</p>
    ${live(d) && html`<progress max=${d.addresses} value=${d.asked} aria-label=${t('inv.progress')}></progress> <button class="btn small" disabled=${Boolean(denied)} title=${denied ?? undefined} onClick=${() => remove(`discoveries/${encodeURIComponent(d.id)}`).then(answer.reload)}>${t('inv.cancel')}</button>`}
    ${d.status_reason && html`<p class="text-2">${textOf(d.status_sentence, d.status_reason)}</p>`}
    ${open && html`<${Await} of=${answer} height=${40}>${({ items, next }) => html`<ul>${items.map((f) => html`<${Find} key=${f.id} find=${f} waiting=${waiting} onRegister=${onRegister} />`)}</ul>${next && html`<${Note} title=${t('alo.only_first', { n: items.length })} />`}`}<//>`}</li>`;
}

function Start({ onClose }) {
  const [ranges, setRanges] = useState('');
  const [credential, setCredential] = useState('');
  const key = useRef(newKey());
  return html`<${Question} id="sweep" title=${t('inv.sweep_ask')} button=${t('inv.start')} onClose=${onClose} onDone=${onClose} send=${() => post('discoveries', { ranges: ranges.split(/[\s,;]+/).filter(Boolean), ...(credential ? { credential } : {}) }, key.current)}>
    <p class="text-2">${t('inv.sweep_means')}</p>
    <div class="form"><label for="inv-ranges">${t('inv.ranges')}</label><input id="inv-ranges" class="field mono" required spellcheck="false" placeholder="10.20.0.0/24" value=${ranges} onInput=${(e) => setRanges(e.target.value)} />
      <label for="inv-secret">${t('inv.secret')}</label><input id="inv-secret" class="field mono" spellcheck="false" autocomplete="off" value=${credential} onInput=${(e) => setCredential(e.target.value)} /></div><//>`;
}

/** `waiting` are the names of servers that are discovered. */
export function Discovery({ waiting, onRegister }) {
  const denied = useMay('inventory');
  const [asking, setAsking] = useState(false);
  return html`<${Panel} title=${t('inv.discovery')} id="discovery" aside=${html`<button class="btn small" disabled=${Boolean(denied)} title=${denied ?? undefined} onClick=${() => setAsking(true)}>${t('inv.start')}</button>`}>
    <${Pages} path=${`discoveries?limit=${PAGE}`} height=${60}>${({ items }, first) => (items.length === 0 ? first && html`<${Note} title=${t('inv.no_sweep')} />` : html`<ul>${items.map((d) => html`<${Sweep} key=${d.id} sweep=${d} waiting=${waiting} onRegister=${onRegister} />`)}</ul>`)}<//>
    ${asking && html`<${Start} onClose=${() => setAsking(false)} />`}<//>`;
}
