// Actions: what one would do and why, what was checked before, and the box that asks before it acts.
import { cls, html, useModal, useRef, useState } from '../lib/html.js';
import { newKey, post, useApi, useLink } from '../lib/api.js';
import { firstSentence, fmt, known, name, textOf, t } from '../lib/i18n.js';
import { useKeys } from '../lib/keys.js';
import { href } from '../lib/router.js';
import { Shape, stepShape } from './status.js';

/** One sentence with a verb: what a kind of action does to a target. */
export const doText = (kind, target) => (known(`do.${kind}`) ? t(`do.${kind}`, { target }) : `${name('rung', kind)}: ${target}`);
const OF_PARTS = new Set(['reset_gpu', 'validate', 'configure_gpu', 'replace', 'inspect_feed', 'inspect_cooling', 'inspect_cable', 'clean_optics', 'cap_power', 'uncap_power', 'notify_owner', 'observe']);
/** What one action does. Some act on the part, the others on the server that holds it. */
export const actionText = (action) => doText(action.kind, (OF_PARTS.has(action.kind) && action.target) || action.server || action.target);

const RANK = ['ended', 'proposed', 'unknown', 'approved', 'verifying', 'running', 'waiting'];
const rankOf = (a) => Math.max(0, RANK.indexOf(a.state));
/** What waits for a person first, then what runs, then what has ended as it went up the ladder. */
export const bySoonest = (items) => [...items].sort((a, b) => rankOf(b) - rankOf(a) || a.rung - b.rung || Date.parse(a.time) - Date.parse(b.time));

/** Whether an action only shows what it would do. */
export const isDry = (action) => action.mode === 'dry-run' || action.mode === 'observe';
/** Whether only a person can do it; records of earlier versions have the text alone. */
const isManual = (action) => action.state === 'proposed' && /^step\.for_person/.test(action.detail_sentence?.id ?? (action.detail?.startsWith('for a person') ? 'step.for_person' : ''));
/** The detail of an action, unless its state means the same. */
const IMPLIED_BY_STATE = new Set(['step.for_person', 'step.waits_approval', 'step.observed_only', 'step.decided', 'step.sent']);
const TEXTS_BY_STATE = new Set(['for a person', 'waits for approval', 'observed only', 'decided', 'sent']);
export const detailOf = (action) => (IMPLIED_BY_STATE.has(action.detail_sentence?.id) || TEXTS_BY_STATE.has(action.detail) ? '' : textOf(action.detail_sentence, action.detail));
const whyOf = (action) => textOf(action.sentence, firstSentence(action.why));
const proofOf = (action) => textOf(action.verified_sentence, action.verified_by);
/** Whether somebody asked for it: then nobody has to approve it, and it waits for a check alone. */
const isAsked = (action) => action.sentence?.id === 'request.asked';
/** The state of an action in a word. */
export const stateText = (action) => (isManual(action) ? t('act.person') : isDry(action) && ['proposed', 'done', 'approved', 'waiting'].includes(action.state) ? t(`act.would.${action.mode}`) : t(isAsked(action) && action.state === 'waiting' ? 'act.held' : `act.${action.state}`));
/** Shape and colour of an action. */
export const shapeOf = (action) => (isManual(action) ? ['person', 'text'] : isDry(action) && action.state !== 'refused' ? ['later', 'action'] : stepShape(action.state));

const DESTRUCTIVE = new Set(['reset_gpu', 'reload_driver', 'restart_service', 'reboot', 'power_cycle', 'ac_cycle', 'reset_bmc', 'reinstall']);

/** What was checked, each with its number and its limit. */
export const Rails = ({ rails }) => html`<ul class="rails" aria-label=${t('act.rails')}>${rails.map((rail) => html`<li class=${rail.ok ? '' : 'c-critical'} title=${textOf(rail.sentence, rail.detail)}><${Shape} kind=${rail.ok ? 'done' : 'failed'} token=${rail.ok ? 'ok' : 'critical'} size=${11} label=${t(rail.ok ? 'rail.holds' : 'rail.fails')} />${railText(rail)}</li>`)}</ul>`;
const BOUND = { confidence: 'rail.at_least', quiet_seconds: 'rail.at_least', cool_down_seconds: 'rail.at_least', evidence_age_seconds: 'rail.at_most' };
const figure = (rail, v) => (rail.name === 'confidence' ? fmt.prob(v) : rail.name.endsWith('_seconds') ? fmt.dur(v) : fmt.num(v));
const railText = (rail) => {
  const text = textOf(rail.sentence, rail.detail);
  if (!known(`rail.${rail.name}`)) return text || name('rail', rail.name);
  const label = t(`rail.${rail.name}`);
  return !rail.ok && text ? `${label}: ${text}` : rail.limit ? `${label} ${t(BOUND[rail.name] ?? 'rail.of', { value: figure(rail, rail.value), limit: figure(rail, rail.limit) })}` : label;
};

/** Who approved an action, of how many who must; and who let it through a freeze. */
const Approvals = ({ action }) => {
  const given = action.approvals ?? [];
  const count = action.approvals_needed > 0 && t('act.approvals', { given: given.length, needed: action.approvals_needed });
  return html`${action.approvals_needed > 0 && html`<p class="dim approvals">${given.length > 0 ? t('act.approvals_by', { count, who: given.map((v) => v.by).join(t('fleet.comma')) }) : count}</p>`}
    ${action.override && html`<p class="dim">${t('act.overridden', { who: action.override.by, why: action.override.reason })}</p>`}`;
};

/** What a step would end: servers, GPUs, jobs and the hours that they computed. */
export const Blast = ({ of }) => html`<p class="blast"><b>${t('blast.title')}</b> ${t('blast.sum', { servers: of.servers.length, gpus: of.gpus, jobs: of.jobs.length })}${of.gpu_hours > 0 && html`${t('fleet.comma')}${t('blast.hours', { hours: fmt.num(Math.round(of.gpu_hours * 10) / 10) })}`}${of.unknown > 0 && html`${t('fleet.comma')}${t('blast.unknown', { n: of.unknown })}`}
  ${of.jobs.length > 0 && html`<br /><span class="dim">${of.jobs.slice(0, MOST_JOBS).map((job) => (job.owner ? t('blast.job', { job: job.name || job.id, owner: job.owner }) : job.name || job.id)).join(t('fleet.comma'))}${of.jobs.length > MOST_JOBS && ` ${t('more', { n: of.jobs.length - MOST_JOBS })}`}</span>`}
  ${of.jobs.length === 0 && of.owners.length > 0 && html`<br /><span class="dim">${t('blast.owners', { who: of.owners.join(t('fleet.comma')) })}</span>`}</p>`;
const MOST_JOBS = 4;

/** Whether this person may act now, and if not, why. */
const WHO = { assign: 'admins', enrol: 'engineers', operate: 'engineers', allocate: 'engineers', inventory: 'engineers' };

export function useMay(right) {
  const me = useApi('me').data;
  const link = useLink();
  if (link.state === 'lost') return t('act.offline');
  return me && !me.permissions.includes(right) ? t('act.needs_role', { right, who: t(`right.${WHO[right] ?? 'operators'}`) }) : null;
}

/** The dialog names the effect in its button, shows what was checked, and needs a second, deliberate press. */
function Ask({ action, onClose, onDone }) {
  const dialog = useModal(onClose);
  const [error, setError] = useState(null);
  const [busy, setBusy] = useState(false);
  useKeys({ modal: true, Escape: onClose });
  const sent = useRef(null); // the key of the press that is on its way: a double click is one press
  const approve = () => {
    if (sent.current) return;
    sent.current = newKey();
    setBusy(true);
    post(`actions/${encodeURIComponent(action.id)}/approve`, {}, sent.current).then((answer) => onDone(answer?.detail ? t('act.still', { still: t('act.two_persons') }) : t('act.sent')), (failure) => { sent.current = null; setBusy(false); setError(failure); });
  };
  const destructive = DESTRUCTIVE.has(action.kind);
  return html`<dialog class="ask" ref=${dialog} aria-labelledby="ask-title">
    <h2 id="ask-title">${actionText(action)}</h2>
    <p>${whyOf(action)}</p>
    ${detailOf(action) && html`<p class="text-2">${detailOf(action)}</p>`}
    <p class=${destructive ? 'c-warning' : 'dim'}>${t(destructive ? 'act.irreversible' : 'act.reversible')}.</p>
    ${action.blast_radius && html`<${Blast} of=${action.blast_radius} />`}
    <${Approvals} action=${action} />
    ${action.rails.length > 0 && html`<h3>${t('act.rails')}</h3><${Rails} rails=${action.rails} />`}
    ${error && html`<p class="c-critical" role="alert">${error.message} ${error.hint}</p>`}
    <footer><button class="btn" onClick=${onClose}>${t('act.back')}</button><button class="btn primary" disabled=${busy} autofocus onClick=${approve}>${actionText(action)}</button></footer>
  </dialog>`;
}

/** Asks for words that go with a decision: why a freeze does not hold, or what a person has done. */
function Words({ action, verb, field, required, onClose, onDone, children }) {
  const dialog = useModal(onClose);
  const [words, setWords] = useState('');
  const [error, setError] = useState(null);
  const [busy, setBusy] = useState(false);
  useKeys({ modal: true, Escape: onClose });
  const send = (event) => {
    event.preventDefault();
    setBusy(true);
    post(`actions/${encodeURIComponent(action.id)}/${verb}`, { [field]: words }).then(() => onDone(t(`act.${verb}_sent`)), (failure) => { setBusy(false); setError(failure); });
  };
  return html`<dialog class="ask" ref=${dialog} aria-labelledby="words-title"><form onSubmit=${send}>
    <h2 id="words-title">${t(`act.${verb}`)}</h2>
    <p>${actionText(action)}</p>
    ${children}
    <div class="form"><label for="words">${t(`act.${verb}_why`)}</label><input id="words" class="field" required=${required} maxlength="500" value=${words} onInput=${(e) => setWords(e.target.value)} /></div>
    ${error && html`<p class="c-critical" role="alert">${error.message} ${error.hint}</p>`}
    <footer><button type="button" class="btn" onClick=${onClose}>${t('act.back')}</button><button class="btn primary" disabled=${busy}>${t(`act.${verb}`)}</button></footer>
  </form></dialog>`;
}
/** The check of a freeze that holds an action. */
const freezeOf = (action) => action.rails.find((rail) => rail.name === 'change_freeze' && !rail.ok);

const CANCELLABLE = ['proposed', 'waiting', 'approved'];
const ENDABLE = ['install', 'reinstall'];

/** Whether an action goes on in the world and can be ended there. */
const goesOn = (action) => ['running', 'verifying'].includes(action.state) && ENDABLE.includes(action.kind) && !action.effect_at;

/** Approve, dry run, cancel, override and resolve. The keys a and d work on the `first` one of a page. */
export function Decide({ action, first }) {
  const [asking, setAsking] = useState(false);
  const [saying, setSaying] = useState(false);
  const [note, setNote] = useState(null);
  const [busy, setBusy] = useState(false);
  const denied = useMay('approve');
  const mayOverride = !useMay('assign');
  const mayResolve = !useMay('cancel');
  const waits = action.state === 'waiting';
  const approvable = waits && (!isAsked(action) || action.approvals_needed > 0);
  const ask = (verb, text) => {
    setBusy(true);
    post(`actions/${encodeURIComponent(action.id)}/${verb}`).then(() => setNote(text), (e) => setNote(`${e.message} ${e.hint ?? ''}`)).then(() => setBusy(false));
  };
  const dry = () => ask('dry-run', t('act.dry_sent'));
  useKeys(first && !denied && approvable ? { a: () => setAsking(true), d: dry } : {});
  const close = (text) => { setSaying(false); setNote(text ?? null); };
  if (action.person && action.state === 'proposed' && !isDry(action) && mayResolve) {
    return html`<div class="decide">
      <button class="btn" onClick=${() => setSaying(true)}>${t('act.resolve')}</button>
      ${note && html`<p class="feedback" role="status">${note}</p>`}
      ${saying && html`<${Words} action=${action} verb="resolve" field="note" onClose=${() => close()} onDone=${close} />`}
    </div>`;
  }
  if (!(CANCELLABLE.includes(action.state) || goesOn(action)) || isManual(action) || (isDry(action) && !waits)) return note && html`<p class="feedback" role="status">${note}</p>`;
  const off = Boolean(denied) || busy;
  return html`<div class="decide">
    ${approvable && html`<button class="btn primary" disabled=${off} title=${denied ?? undefined} onClick=${() => setAsking(true)}>${t('act.approve')}${first && html`<kbd>a</kbd>`}</button>
    <button class="btn" disabled=${off} onClick=${dry}>${t('act.dry_run')}${first && html`<kbd>d</kbd>`}</button>`}
    <button class="btn" disabled=${off} onClick=${() => ask('cancel', t('act.was_cancelled'))}>${t('act.cancel')}</button>
    ${waits && mayOverride && freezeOf(action) && html`<button class="btn" disabled=${off} onClick=${() => setSaying(true)}>${t('act.override')}</button>`}
    ${denied && html`<p class="dim">${denied}</p>`}
    ${note && html`<p class="feedback" role="status">${note}</p>`}
    ${asking && html`<${Ask} action=${action} onClose=${() => setAsking(false)} onDone=${(text) => { setAsking(false); setNote(text); }} />`}
    ${saying && freezeOf(action) && html`<${Words} action=${action} verb="override" field="reason" required onClose=${() => close()} onDone=${close}>
      <p class="text-2">${textOf(freezeOf(action).sentence, freezeOf(action).detail)}</p>
      ${action.blast_radius && html`<${Blast} of=${action.blast_radius} />`}
    <//>`}
  </div>`;
}

/** What was tried before an action that waits, the step itself, and what would come after it. */
function Ladder({ action }) {
  const { data } = useApi(`actions?incident=${encodeURIComponent(action.incident)}`);
  const tried = new Map();
  for (const a of data?.items ?? []) if (a.server === action.server && a.rung < action.rung && !(tried.get(a.rung)?.attempt > a.attempt)) tried.set(a.rung, a);
  const then = (action.ladder ?? []).slice(action.rung + 1);
  return html`<ol class="ladder">
    ${[...tried.values()].sort((a, b) => a.rung - b.rung).concat(action).map((a) => {
      const [kind, token] = shapeOf(a);
      return html`<li class=${`is-${a.state}`}><${Shape} kind=${kind} token=${token} label=${stateText(a)} /><span class="rung">${t(`rung.${a.kind}`)}</span><span class="rung-note">${a.state === 'done' ? proofOf(a) : detailOf(a) || (a === action ? whyOf(a) : stateText(a))}</span></li>`;
    })}
    ${then.length > 0 && html`<li class="is-later"><${Shape} kind="later" token="out" /><span class="rung">${t('act.then')}</span><span class="rung-note">${then.map((kind) => name('rung', kind)).join(' → ')}</span></li>`}
  </ol>`;
}

/** One action on the page of an incident or in the list of what waits. */
export function ActionCard({ action, first, wide }) {
  const [kind, token] = shapeOf(action);
  const waits = action.state === 'waiting';
  const checks = action.rails.length > 0 && html`<${Rails} rails=${action.rails} />`;
  return html`<article class=${cls('action', waits && 'waits', wide && 'wide')}>
    <header><${Shape} kind=${kind} token=${token} size=${13} /><h3>${actionText(action)}</h3><span class=${`c-${token}`}>${stateText(action)}</span></header>
    ${wide && action.incident && html`<p class="from dim"><a href=${href(`incidents/${action.incident}`)}>${action.incident}</a>${action.attempt > 1 && html` · ${t('act.attempt', { n: action.attempt })}`} · ${t('act.mode', { mode: name('mode', action.mode) })}</p>`}
    ${wide && action.prediction && html`<p class="from dim"><a href=${href('predictions')}>${t('act.foretold')}</a> · ${t('act.mode', { mode: name('mode', action.mode) })}</p>`}
    ${wide && waits && action.incident ? html`<${Ladder} action=${action} />` : html`<div class="plan">
      ${(wide || !action.incident) && whyOf(action) && html`<p class="text-2">${whyOf(action)}</p>`}
      ${detailOf(action) && html`<p>${detailOf(action)}</p>`}
      ${proofOf(action) && html`<p class="dim">${t('act.verified', { by: proofOf(action) })}</p>`}
    </div>`}
    ${(waits || action.state === 'proposed') && action.blast_radius && html`<${Blast} of=${action.blast_radius} />`}
    <${Approvals} action=${action} />
    ${['done', 'cancelled'].includes(action.state) ? checks && html`<details class="checked"><summary>${t('act.rails_n', { n: action.rails.length })}</summary>${checks}</details>` : checks}
    <${Decide} action=${action} first=${first} />
  </article>`;
}
