// What a person says about the cause of an incident: right, another, or none; it may be changed.
import { html, useEffect, useModal, useState } from '../lib/html.js';
import { ask, post, useApi } from '../lib/api.js';
import { fmt, inWords, t } from '../lib/i18n.js';
import { useKeys } from '../lib/keys.js';
import { Res, Segments, titleOf, useFaultTitle } from './bits.js';
import { useMay } from './ladder.js';
import { Panel } from './panel.js';
import { Shape } from './status.js';

const SHAPES = { right: ['done', 'ok'], cause: ['failed', 'warning'], no_incident: ['later', 'out'] };
const FOUND = 8;
const PAUSE_MS = 150; // between the last key and the question

/** The mark of an incident that somebody has judged, for lists. */
export const Judged = ({ correction }) => correction?.verdict && html`<span class="judged"><${Shape} kind=${SHAPES[correction.verdict][0]} token=${SHAPES[correction.verdict][1]} size=${11} label=${t(`cor.${correction.verdict}`)} /></span>`;

/** Names of resources like a text, as a person types it. */
function useNames(text) {
  const [names, setNames] = useState([]);
  useEffect(() => {
    let wanted = true;
    const timer = text.trim().length > 1 && setTimeout(() => ask(`resources?limit=${FOUND}&find=${encodeURIComponent(text.trim())}`).then(({ items }) => { if (wanted) setNames(items.map((r) => r.name)); }, () => {}), PAUSE_MS);
    return () => { wanted = false; clearTimeout(timer); };
  }, [text]);
  return names;
}

function Form({ incident, verdict: first, onClose }) {
  const dialog = useModal(onClose);
  const before = incident.correction?.verdict ? incident.correction : null;
  const other = incident.alternatives[0];
  const start = before?.verdict === 'cause' ? before : other;
  const [verdict, setVerdict] = useState(first);
  const [resource, setResource] = useState(start?.resource ?? '');
  const [fault, setFault] = useState(start?.fault ?? '');
  const [note, setNote] = useState(before?.note ?? '');
  const [error, setError] = useState(null);
  const [busy, setBusy] = useState(false);
  const faults = useApi('faults').data?.items ?? [];
  const names = useNames(resource);
  useKeys({ modal: true, Escape: onClose });
  const known = incident.root_cause.fault !== 'unknown';
  const options = [known && 'right', 'cause', 'no_incident'].filter(Boolean);
  const send = (event) => {
    event.preventDefault();
    setBusy(true);
    post(`incidents/${encodeURIComponent(incident.id)}/corrections`, { verdict, note, ...(verdict === 'cause' ? { resource, fault } : {}) }).then(onClose, (failure) => { setBusy(false); setError(failure); });
  };
  const listed = [...new Set([...incident.alternatives.map((a) => a.resource), ...names])];
  return html`<dialog class="ask" ref=${dialog} aria-labelledby="correct-title"><form onSubmit=${send}>
    <h2 id="correct-title">${t('cor.ask')}</h2>
    <p class="text-2">${t('cor.said', { resource: incident.root_cause.resource, fault: titleOf(incident.root_cause), p: fmt.prob(incident.root_cause.confidence) })}</p>
    <div class="form">
      <${Segments} label=${t('cor.verdict')} value=${verdict} options=${options.map((v) => [v, t(`cor.${v}`)])} onChange=${setVerdict} />
      ${verdict === 'cause' && html`
        <label for="cor-resource">${t('cor.resource')}</label><input id="cor-resource" class="field mono" list="cor-names" required maxlength="300" spellcheck="false" autocomplete="off" value=${resource} onInput=${(e) => setResource(e.target.value)} /><datalist id="cor-names">${listed.map((n) => html`<option value=${n}></option>`)}</datalist>
        <label for="cor-fault">${t('cor.fault')}</label><select id="cor-fault" class="field" required value=${fault} onChange=${(e) => setFault(e.target.value)}><option value="" disabled>${t('cor.choose')}</option>${faults.map((f) => html`<option value=${f.fault} selected=${f.fault === fault}>${inWords(f.title, f.fault)}</option>`)}<option value="unknown" selected=${fault === 'unknown'}>${t('cor.other')}</option></select>`}
      <label for="cor-note">${t('cor.note')}</label><textarea id="cor-note" class="field" rows="3" maxlength="2000" value=${note} onInput=${(e) => setNote(e.target.value)}></textarea>
    </div>
    ${error && html`<p class="c-critical" role="alert">${error.message} ${error.hint}</p>`}
    <footer><button type="button" class="btn" onClick=${onClose}>${t('act.back')}</button><button class="btn primary" disabled=${busy}>${t('cor.save')}</button></footer>
  </form></dialog>`;
}

/** The verdict that stands on an incident, and the way to give one. */
export function Verdict({ incident }) {
  const [asking, setAsking] = useState(null);
  const [error, setError] = useState(null);
  const denied = useMay('correct');
  const titled = useFaultTitle();
  const c = incident.correction?.verdict ? incident.correction : null;
  if (incident.merged_into) return null;
  const send = (verdict) => post(`incidents/${encodeURIComponent(incident.id)}/corrections`, { verdict }).then(() => setError(null), setError);
  const off = Boolean(denied);
  const button = (text, run, primary) => html`<button class=${primary ? 'btn primary' : 'btn'} disabled=${off} title=${denied ?? undefined} onClick=${run}>${text}</button>`;
  return html`<${Panel} title=${t('cor.title')} id="verdict">
    ${c ? html`<p class="verdict"><${Shape} kind=${SHAPES[c.verdict][0]} token=${SHAPES[c.verdict][1]} size=${13} /> <b>${t(`cor.is.${c.verdict}`)}</b></p>
      ${c.verdict === 'cause' && html`<p><${Res} id=${c.resource} /> <span class="dim">${c.fault === 'unknown' ? t('cor.other') : titled(c.fault)}</span></p>`}
      ${c.note && html`<p class="text-2 cor-note">${c.note}</p>`}
      <p class="dim">${t('cor.by', { who: c.author, when: fmt.stamp(Date.parse(c.time)) })}</p>` : html`<p class="text-2">${t('cor.none')}</p>`}
    <div class="decide">
      ${c ? html`${button(t('cor.change'), () => setAsking(c.verdict))}${button(t('cor.withdraw'), () => send('withdrawn'))}`
        : html`${incident.root_cause.fault !== 'unknown' && button(t('cor.right'), () => send('right'))}${button(t('cor.cause'), () => setAsking('cause'))}${button(t('cor.no_incident'), () => setAsking('no_incident'))}`}
      ${denied && html`<p class="dim">${denied}</p>`}
    </div>
    ${error && html`<p class="c-critical" role="alert">${error.message} ${error.hint}</p>`}
    ${asking && html`<${Form} incident=${incident} verdict=${asking} onClose=${() => setAsking(null)} />`}
  <//>`;
}
