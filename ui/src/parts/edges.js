// Which kinds of events bring about which others, as counted from lags: for a person to accept or to decline.
import { cls, html, useModal, useState } from '../lib/html.js';
import { post, useApi } from '../lib/api.js';
import { fmt, name, t } from '../lib/i18n.js';
import { useKeys } from '../lib/keys.js';
import { Res, useFaultTitle } from './bits.js';
import { useMay } from './ladder.js';
import { Await, Panel } from './panel.js';
import { Shape } from './status.js';

const SHAPES = { open: ['waiting', 'action'], accepted: ['done', 'ok'], declined: ['failed', 'out'], withdrawn: ['later', 'out'] };

/** A way through the inventory in words; the empty way is the part itself. */
const inSteps = (way) => (way ? way.split('>').map((s) => { const [op, kind] = s.trim().split(':'); return t(`edge.step.${op}`, { kind: name('part', kind).replace(/^[A-Z](?=[a-z])/, (c) => c.toLowerCase()) }); }).join(' → ') : t('edge.itself'));

const IDS = 3; // of an example that are listed
const MUCH = 1000; // beyond, how much more often is not known so well
const times = (lift) => (lift > MUCH ? `> ${fmt.num(MUCH)}` : fmt.num(lift));

const chosen = (p) => (p.decision?.fault && p.causes.find((c) => c.fault === p.decision.fault && (c.way ?? '') === (p.decision.way ?? ''))) || p.causes[0];

function Ask({ proposal: p, decision, onClose, onDone }) {
  const dialog = useModal(onClose);
  const [fault, setFault] = useState(chosen(p)?.fault ?? '');
  const [reason, setReason] = useState('');
  const [error, setError] = useState(null);
  const [busy, setBusy] = useState(false);
  const titled = useFaultTitle();
  useKeys({ modal: true, Escape: onClose });
  const accept = decision === 'accepted';
  const c = p.causes.find((x) => x.fault === fault) ?? chosen(p);
  const send = (event) => {
    event.preventDefault();
    setBusy(true);
    post(`learning/edges/${encodeURIComponent(p.id)}/decisions`, { decision, reason, ...(accept ? { fault } : {}) }).then(onDone, (failure) => { setBusy(false); setError(failure); });
  };
  return html`<dialog class="ask" ref=${dialog} aria-labelledby="edge-title"><form onSubmit=${send}>
    <h2 id="edge-title">${t(`edge.ask.${decision}`)}</h2>
    <p class="mono">${p.cause} → ${p.effect}</p>
    <p class="text-2">${t(`edge.means.${decision}`)}</p>
    <div class="form">
      ${accept && html`<label for="edge-fault">${t('edge.fault')}</label><select id="edge-fault" class="field" value=${fault} onChange=${(e) => setFault(e.target.value)}>${p.causes.map((x) => html`<option value=${x.fault} selected=${x.fault === fault}>${titled(x.fault)}</option>`)}</select>
        <p class="dim">${t('edge.force', { where: inSteps(c.way), shows: fmt.prob(c.shows), share: fmt.prob(c.share), lag: fmt.dur(c.lag_s) })}</p>`}
      <label for="edge-reason">${t('edge.reason')}</label><textarea id="edge-reason" class="field" rows="3" required maxlength="1000" value=${reason} onInput=${(e) => setReason(e.target.value)}></textarea>
    </div>
    ${error && html`<p class="c-critical" role="alert">${error.message} ${error.hint}</p>`}
    <footer><button type="button" class="btn" onClick=${onClose}>${t('act.back')}</button><button class="btn primary" disabled=${busy}>${t(`edge.do.${decision}`)}</button></footer>
  </form></dialog>`;
}

function Evidence({ cause: c }) {
  return html`<details><summary>${t('edge.examples', { n: c.examples.length })}</summary><div class="scroll"><table class="table tight"><thead><tr><th>${t('edge.when')}</th><th>${t('edge.part')}</th><th class="r">${t('edge.shown')}</th><th class="r">${t('edge.lag')}</th><th class="ids">${t('edge.events')}</th></tr></thead>
    <tbody>${[...c.examples].reverse().map((x) => html`<tr><td class="num">${fmt.stamp(Date.parse(x.time))}</td><td><${Res} id=${x.part} /></td><td class="r num">${t('pre.said_of', { hits: x.shown, ended: x.of })}</td><td class="r num">${fmt.dur(x.lag_s)}</td><td class="mono dim ids" title=${[x.event, ...x.effects].join('\n')}>${[x.event, ...x.effects].slice(0, IDS).join(', ')}${x.effects.length >= IDS ? ` ${t('more', { n: x.effects.length + 1 - IDS })}` : ''}</td></tr>`)}</tbody></table></div></details>`;
}

function Row({ proposal: p, denied, onAsk }) {
  const titled = useFaultTitle();
  const c = chosen(p);
  const d = p.decision;
  const button = (decision, primary) => html`<button class=${cls('btn small', primary && 'primary')} disabled=${Boolean(denied)} title=${denied ?? undefined} onClick=${() => onAsk(p, decision)}>${t(`edge.do.${decision}`)}</button>`;
  return html`<li class="edge"><p class="verdict"><${Shape} kind=${SHAPES[p.state][0]} token=${SHAPES[p.state][1]} size=${13} label=${t(`edge.is.${p.state}`)} /> <b class="mono">${p.cause} → ${p.effect}</b> <span class="dim">${t(`edge.is.${p.state}`)}</span></p>
    ${c ? html`<p>${t('edge.says', { fault: titled(c.fault), where: inSteps(c.way), shown: fmt.num(c.shown), cases: fmt.num(c.cases), lag: fmt.dur(c.lags_sum_s / Math.max(1, c.shown)) })}</p>
      <p class="text-2">${t('edge.lift', { lift: times(c.lift), chance: c.chance < 0.001 ? `< ${fmt.pct(0.001, 1)}` : fmt.pct(c.chance, 1), events: fmt.num(p.events), from: fmt.day(Date.parse(p.from)), to: fmt.day(Date.parse(p.to)) })}</p>` : html`<p class="c-warning">${t('edge.no_cause')}</p>`}
    ${d && html`<p class="text-2 cor-note">${d.reason}</p><p class="dim">${t('cor.by', { who: d.author, when: fmt.stamp(Date.parse(d.time)) })}${d.version > 0 ? ` · ${t('edge.version', { version: d.version })}` : ''}</p>`}
    ${c && html`<${Evidence} cause=${c} />`}
    <div class="decide">${p.state === 'accepted' ? button('withdrawn') : html`${c && button('accepted', p.state === 'open')}${p.state !== 'declined' && button('declined')}`}</div></li>`;
}

/** The proposals, open ones first, and what people decided on them. */
export function Edges() {
  const answer = useApi('learning/edges');
  const denied = useMay('correct');
  const [asking, setAsking] = useState(null);
  if (answer.error?.status === 503) return null; // a process without the store
  const done = () => { setAsking(null); answer.reload(); };
  const open = (answer.data?.items ?? []).filter((p) => p.state === 'open').length;
  return html`<${Panel} title=${t('edge.title')} id="edges" aside=${open > 0 && html`<span class="dim">${t('edge.open', { n: open })}</span>`}><${Await} of=${answer}>${({ items }) => (items.length === 0
    ? html`<p class="lead">${t('edge.none')}</p><p class="dim">${t('edge.none_hint')} <code>auspex learn edges -c auspex.yaml</code></p>`
    : html`<p class="text-2">${t('edge.lead')}</p>${denied && html`<p class="dim">${denied}</p>`}<ul class="edges">${items.map((p) => html`<${Row} key=${p.id} proposal=${p} denied=${denied} onAsk=${(q, decision) => setAsking([q, decision])} />`)}</ul>`)}<//>
    ${asking && html`<${Ask} proposal=${asking[0]} decision=${asking[1]} onClose=${() => setAsking(null)} onDone=${done} />`}<//>`;
}
