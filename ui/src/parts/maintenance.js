// What work is declared here, and the way to declare some.
import { html, useEffect, useModal, useState } from '../lib/html.js';
import { ask, post, useApi } from '../lib/api.js';
import { clock } from '../lib/clock.js';
import { fmt, t } from '../lib/i18n.js';
import { useKeys } from '../lib/keys.js';
import { useMay } from './ladder.js';
import { Await, Note, Panel } from './panel.js';
import { Shape } from './status.js';

const LASTS = [1800, 3600, 7200, 14_400, 28_800, 86_400, 604_800];
const FOUND = 8;
const PAUSE_MS = 150; // between the last key and the question
const NAMED = 3;
const EVERY_MS = 30_000;

const split = (text) => text.split(/[\s,;]+/).filter(Boolean);

/** Names of resources like the last word of a text. */
export function useNames(text, kind) {
  const [names, setNames] = useState([]);
  const word = text.split(/[\s,;]+/).at(-1);
  useEffect(() => {
    let wanted = true;
    const timer = word.length > 1 && setTimeout(() => ask(`resources?limit=${FOUND}${kind ? `&kind=${kind}` : ''}&find=${encodeURIComponent(word)}`).then(({ items }) => { if (wanted) setNames(items.map((r) => r.name)); }, () => {}), PAUSE_MS);
    return () => { wanted = false; clearTimeout(timer); };
  }, [word]);
  return names.map((n) => text.slice(0, text.length - word.length) + n);
}

function Form({ resource, onClose }) {
  const dialog = useModal(onClose);
  const [resources, setResources] = useState(resource ?? '');
  const [from, setFrom] = useState('');
  const [lasts, setLasts] = useState(7200);
  const [reason, setReason] = useState('');
  const [work, setWork] = useState('maintenance');
  const [error, setError] = useState(null);
  const [busy, setBusy] = useState(false);
  const names = useNames(resources);
  useKeys({ modal: true, Escape: onClose });
  const send = (event) => {
    event.preventDefault();
    setBusy(true);
    post('maintenance', { resources: split(resources), duration_seconds: lasts, reason, work, ...(from ? { from: `${from}:00Z` } : {}) }).then(onClose, (failure) => { setBusy(false); setError(failure); });
  };
  return html`<dialog class="ask" ref=${dialog} aria-labelledby="mnt-form-title"><form onSubmit=${send}>
    <h2 id="mnt-form-title">${t('mnt.declare')}</h2>
    <p class="text-2">${t(work === 'freeze' ? 'mnt.freeze_means' : 'mnt.means')}</p>
    <div class="form">
      <label for="mnt-work">${t('mnt.work')}</label><select id="mnt-work" class="field" value=${work} onChange=${(e) => setWork(e.target.value)}><option value="maintenance">${t('mnt.maintenance')}</option><option value="freeze">${t('mnt.freeze')}</option></select>
      <label for="mnt-resources">${t('mnt.resources')}</label><input id="mnt-resources" class="field mono" list="mnt-names" required spellcheck="false" autocomplete="off" value=${resources} onInput=${(e) => setResources(e.target.value)} /><datalist id="mnt-names">${names.map((n) => html`<option value=${n} />`)}</datalist>
      <label for="mnt-from">${t('mnt.from')}</label><input id="mnt-from" class="field" type="datetime-local" value=${from} onInput=${(e) => setFrom(e.target.value)} />
      <label for="mnt-lasts">${t('mnt.lasts')}</label><select id="mnt-lasts" class="field" value=${lasts} onChange=${(e) => setLasts(Number(e.target.value))}>${LASTS.map((s) => html`<option value=${s} selected=${s === lasts}>${fmt.dur(s)}</option>`)}</select>
      <label for="mnt-reason">${t('mnt.reason')}</label><input id="mnt-reason" class="field" required maxlength="500" value=${reason} onInput=${(e) => setReason(e.target.value)} />
    </div>
    ${error && html`<p class="c-critical" role="alert">${error.message} ${error.hint}</p>`}
    <footer><button type="button" class="btn" onClick=${onClose}>${t('act.back')}</button><button class="btn primary" disabled=${busy}>${t('mnt.declare')}</button></footer>
  </form></dialog>`;
}

function Row({ item, denied, onError }) {
  const open = item.state === 'open';
  const places = [...item.resources, ...(item.pools ?? []).map((pool) => t('mnt.pool', { pool }))];
  const more = places.length - NAMED;
  const when = open ? t('mnt.until', { until: fmt.stamp(Date.parse(item.until)), age: fmt.dur((Date.parse(item.until) - clock.now()) / 1000) })
    : t('mnt.between', { from: fmt.stamp(Date.parse(item.from)), until: fmt.stamp(Date.parse(item.until)) });
  const end = () => post(`maintenance/${encodeURIComponent(item.id)}/end`).then(() => onError(null), onError);
  return html`<li class="repair-row"><${Shape} kind=${open ? 'waiting' : 'later'} token=${open ? 'action' : 'out'} label=${t(`mnt.is.${item.state}`)} />
    <span>${item.work === 'freeze' && html`<b class="tag">${t('mnt.freeze')}</b> `}<b>${item.reason}</b> <span class="mono">${places.slice(0, NAMED).join(', ')}</span>${more > 0 ? ` ${t('more', { n: more })}` : ''}<br /><span class="dim">${when} · ${t('mnt.by', { who: item.by, id: item.id })}</span></span>
    <button class="btn small" disabled=${Boolean(denied)} title=${denied ?? undefined} onClick=${end}>${t(open ? 'mnt.end' : 'mnt.withdraw')}</button></li>`;
}

/** The windows that are open or to come, of a resource or of all. */
export function Maintenance({ resource }) {
  const answer = useApi(`maintenance?open=true${resource ? `&resource=${encodeURIComponent(resource)}` : ''}`, { every: EVERY_MS });
  const denied = useMay('declare');
  const [asking, setAsking] = useState(false);
  const [error, setError] = useState(null);
  if (answer.error?.status === 503) return null; // a process without the store
  return html`<${Panel} title=${t('mnt.title')} id="maintenance" flush aside=${html`<button class="btn small" disabled=${Boolean(denied)} title=${denied ?? undefined} onClick=${() => setAsking(true)}>${t('mnt.declare')}</button>`}>
    <${Await} of=${answer} height=${40}>${({ items }) => (items.length === 0 ? html`<${Note} title=${t('mnt.none')} />` : html`<ul class="windows">${items.map((m) => html`<${Row} key=${m.id} item=${m} denied=${denied} onError=${setError} />`)}</ul>`)}<//>
    ${error && html`<p class="c-critical" role="alert">${error.message} ${error.hint}</p>`}
    ${asking && html`<${Form} resource=${resource} onClose=${() => setAsking(false)} />`}
  <//>`;
}
