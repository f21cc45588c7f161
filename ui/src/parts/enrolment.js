// What node agents say of their machines otherwise than the inventory, for a person to accept or to decline, and machines without a place.
import { cls, html, useModal, useState } from '../lib/html.js';
import { post, useApi } from '../lib/api.js';
import { fmt, known, name, t } from '../lib/i18n.js';
import { useKeys } from '../lib/keys.js';
import { useMay } from './ladder.js';
import { Panel } from './panel.js';
import { Shape } from './status.js';

const SHAPES = { added: ['later', 'ok'], changed: ['waiting', 'action'], conflict: ['failed', 'warning'] };
const SHOWN = 100; // proposals
const FEW = 12; // differences of one that are shown unasked
const EVERY_MS = 15_000;
const KEY = 12; // digits of a key that tell machines apart

/** What a key is called: enough of it to tell machines apart. */
export const nameOf = (key) => key.slice(0, KEY);

const attrsOf = (p, d) => (d.attr || d.kind === 'network' ? {} : p.fragment.resources?.find((r) => r.id === d.resource)?.attrs ?? {});

const whyOf = (d) => (known(`enr.why.${d.reason}`) ? t(`enr.why.${d.reason}`, { ...d, others: (d.others ?? []).join(', ') }) : d.why);

/** What a difference is about: a part with what is new of it, an attribute, or a cable. */
function What({ proposal: p, of: d }) {
  if (d.kind === 'network') return html`<span class="mono">${d.resource}</span> <span class="dim">${t('enr.cable')}</span>`;
  if (d.attr) return html`<span class="mono">${d.resource}</span> <span class="dim">${d.attr}</span>`;
  return html`<span class="mono">${d.resource}</span> <span class="dim">${name('part', d.kind)}</span>${d.verb === 'added' && html`<br /><span class="mono dim">${Object.entries(attrsOf(p, d)).map(([k, v]) => `${k}=${v}`).join(' ')}</span>`}`;
}

const Rows = ({ proposal: p, of }) => html`<div class="scroll"><table class="table tight"><thead><tr><th>${t('enr.verb')}</th><th>${t('enr.what')}</th><th>${t('enr.inventory')}</th><th>${t('enr.agent')}</th></tr></thead>
  <tbody>${of.map((d) => html`<tr><td class=${cls(d.verb === 'conflict' && 'c-warning')}><${Shape} kind=${SHAPES[d.verb]?.[0] ?? 'later'} token=${SHAPES[d.verb]?.[1] ?? 'out'} size=${11} /> ${name('enr.is', d.verb)}</td><td><${What} proposal=${p} of=${d} /></td><td class="mono">${d.inventory ?? ''}</td><td class="mono">${d.verb === 'added' && d.kind !== 'network' ? '' : d.agent ?? ''}</td></tr>`)}</tbody></table></div>`;

/** Conflicts first: they are what a person has to look at. */
function Differences({ proposal: p }) {
  const sorted = [...p.differences].sort((a, b) => (b.verb === 'conflict') - (a.verb === 'conflict'));
  return html`<${Rows} proposal=${p} of=${sorted.slice(0, FEW)} />${sorted.length > FEW && html`<details><summary>${t('more', { n: sorted.length - FEW })}</summary><${Rows} proposal=${p} of=${sorted.slice(FEW)} /></details>`}`;
}

const Reasons = ({ proposal: p }) => p.differences.filter((d) => d.why).slice(0, FEW).map((d) => html`<p class="text-2"><span class="mono">${d.resource}</span>: ${whyOf(d)}</p>`);

function Ask({ proposal: p, decision, onClose, onDone }) {
  const dialog = useModal(onClose);
  const [reason, setReason] = useState('');
  const [rack, setRack] = useState('');
  const [error, setError] = useState(null);
  const [busy, setBusy] = useState(false);
  useKeys({ modal: true, Escape: onClose });
  const accept = decision === 'accepted';
  const racks = useApi(accept && !p.known ? 'resources?kind=rack&limit=1000' : null).data?.items ?? [];
  const send = (event) => {
    event.preventDefault();
    setBusy(true);
    post(`proposals/${encodeURIComponent(p.id)}/decisions`, { decision, reason, ...(rack ? { rack } : {}) }).then(onDone, (failure) => { setBusy(false); setError(failure); });
  };
  return html`<dialog class="ask" ref=${dialog} aria-labelledby="enr-title"><form onSubmit=${send}>
    <h2 id="enr-title">${t(`enr.ask.${decision}`, { server: p.server })}</h2>
    <p class="text-2">${t(`enr.means.${decision}`)}${accept && p.conflicts > 0 ? ` ${t('enr.wins', { n: p.conflicts })}` : ''}</p>
    <${Reasons} proposal=${p} />
    <div class="form">${accept && !p.known && html`<label for="enr-rack">${t('enr.rack')}</label><input id="enr-rack" class="field mono" list="enr-racks" maxlength="256" spellcheck="false" autocomplete="off" value=${rack} onInput=${(e) => setRack(e.target.value)} /><datalist id="enr-racks">${racks.map((r) => html`<option value=${r.name} />`)}</datalist>`}
      <label for="enr-reason">${t(accept && p.conflicts === 0 ? 'enr.remark' : 'enr.reason')}</label><input id="enr-reason" class="field" required=${!accept || p.conflicts > 0} maxlength="500" value=${reason} onInput=${(e) => setReason(e.target.value)} /></div>
    ${error && html`<p class="c-critical" role="alert">${error.message} ${error.hint}</p>`}
    <footer><button type="button" class="btn" onClick=${onClose}>${t('act.back')}</button><button class="btn primary" disabled=${busy}>${t(`enr.do.${decision}`, { server: p.server })}</button></footer>
  </form></dialog>`;
}

function Row({ proposal: p, denied, onAsk }) {
  const button = (decision, primary) => html`<button class=${cls('btn small', primary && 'primary')} disabled=${Boolean(denied)} title=${denied ?? undefined} onClick=${() => onAsk(p, decision)}>${t(`enr.do.${decision}`, { server: p.server })}</button>`;
  return html`<li class="edge"><p class="verdict"><${Shape} kind=${p.conflicts > 0 ? 'failed' : 'waiting'} token=${p.conflicts > 0 ? 'warning' : 'action'} size=${13} /> <b class="mono">${p.server}</b> <span>${t(p.known ? 'enr.differs' : 'enr.new', { n: p.differences.length, conflicts: p.conflicts })}</span></p>
    <p class="dim">${p.machine ? t('enr.dialled', { host: p.hostname || nameOf(p.machine), token: p.token ?? '', when: fmt.stamp(Date.parse(p.time)) }) : t('enr.read', { address: p.address ?? '', when: fmt.stamp(Date.parse(p.time)) })}</p>
    <${Reasons} proposal=${p} />
    <${Differences} proposal=${p} />
    <div class="decide">${button('accepted', true)}${button('declined')}</div></li>`;
}

/** Open proposals and machines without a place; nothing where nothing waits. */
export function Enrolment() {
  const answer = useApi(`proposals?state=open&limit=${SHOWN}`, { every: EVERY_MS });
  const machines = useApi('machines?limit=1000', { every: EVERY_MS });
  const denied = useMay('enrol');
  const [asking, setAsking] = useState(null);
  const open = answer.data?.items ?? [];
  const lost = (machines.data?.items ?? []).filter((m) => m.admitted && !m.server && !open.some((p) => p.machine === m.key));
  if (open.length + lost.length === 0) return null;
  const done = () => { setAsking(null); answer.reload(); machines.reload(); };
  return html`<${Panel} title=${t('enr.title')} id="enrolment" aside=${html`<span class="dim">${t('enr.open', { n: open.length })}</span>`}>
    <p class="text-2">${t('enr.lead')}</p>${denied && html`<p class="dim">${denied}</p>`}
    ${lost.length > 0 && html`<ul class="windows">${lost.map((m) => html`<li class="repair-row"><${Shape} kind="waiting" token="out" label=${t('enr.lost')} /><span><b>${m.hostname || nameOf(m.key)}</b> ${t('enr.lost')}${m.doubt ? `: ${m.doubt}` : ''}<br /><span class="dim mono">${[nameOf(m.key), m.serial, m.address].filter(Boolean).join(' · ')}</span></span></li>`)}</ul>`}
    <ul class="edges">${open.map((p) => html`<${Row} key=${p.id} proposal=${p} denied=${denied} onAsk=${(q, decision) => setAsking([q, decision])} />`)}</ul>
    ${asking && html`<${Ask} proposal=${asking[0]} decision=${asking[1]} onClose=${() => setAsking(null)} onDone=${done} />`}<//>`;
}
