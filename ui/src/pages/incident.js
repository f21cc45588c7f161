// What is the one cause, why do we think so, and what should be done?
import { html, useMemo, useState } from '../lib/html.js';
import { useApi } from '../lib/api.js';
import { useNow } from '../lib/clock.js';
import { fmt, inWords, name, textOf, t } from '../lib/i18n.js';
import { useKeys } from '../lib/keys.js';
import { href } from '../lib/router.js';
import { Confidence, Res, summaryOf, titleOf } from '../parts/bits.js';
import { CauseGraph } from '../parts/causegraph.js';
import { Verdict } from '../parts/correct.js';
import { Evidence, drawn, speaksOf } from '../parts/evidence.js';
import { ActionCard, bySoonest, doText } from '../parts/ladder.js';
import { Await, Note, Panel } from '../parts/panel.js';
import { Shape, severityKind } from '../parts/status.js';

function Head({ incident }) {
  const now = useNow(1000);
  const cause = incident.root_cause;
  const lasts = ((incident.closed ? Date.parse(incident.closed) : now) - Date.parse(incident.opened)) / 1000;
  return html`<header class="incident-head">
    <p class="crumbs"><a href=${href('incidents')}>${t('inc.title')}</a> / <span class="mono">${incident.id}</span> <span class=${`pill c-${severityKind(incident.severity)}`}>${t(`inc.${incident.status}`)}</span></p>
    <h1><${Shape} kind=${severityKind(incident.severity)} size=${18} label=${name('severity', incident.severity)} />${summaryOf(incident)}</h1>
    ${incident.merged_into && html`<p class="text-2"><a href=${href(`incidents/${incident.merged_into}`)}>${t('inc.merged_into', { id: incident.merged_into })}</a></p>`}
    ${incident.external && html`<p class="c-warning">${t('inc.external')}</p>`}
    <dl class="facts-line">
      <div><dt>${t('inc.cause')}</dt><dd><${Res} id=${cause.resource} /> <span class="dim">${titleOf(cause)}</span></dd></div>
      <div><dt>${t('inc.confidence')}</dt><dd><${Confidence} p=${cause.confidence} wide /></dd></div>
      <div><dt>${t('inc.opened')}</dt><dd class="num">${fmt.clock(Date.parse(incident.opened))} <span class="dim">UTC</span></dd></div>
      <div><dt>${t('inc.lasts')}</dt><dd class="num">${fmt.dur(lasts)}</dd></div>
      <div><dt>${t('inc.fold_line')}</dt><dd class="num">${t('inc.folded', { alerts: incident.alerts })}</dd></div>
      <div><dt>${t('inc.servers')}</dt><dd class="num">${t('inc.affects', { servers: incident.affected.length, jobs: incident.workloads.length })}</dd></div>
    </dl>
  </header>`;
}

/** The explanation, a sentence a line; each knows the lanes of evidence it speaks of. */
function Why({ incident, lanes, lit, onLit }) {
  const lines = (incident.sentences ?? []).map((s) => ({ ...s, text: textOf(s) }));
  if (lines.length === 0 || lines.some((s) => !s.text)) return html`<p class="lead why-text">${inWords(incident.explanations, incident.explanation)}</p>`;
  return html`<ol class="why">${lines.map((s) => {
    const count = s.count || lanes.filter((l) => speaksOf(s.lanes, l)).reduce((n, l) => n + l.count, 0);
    return html`<li onMouseEnter=${() => onLit(s.lanes)} onMouseLeave=${() => onLit(null)}>
      <span>${s.text}</span>${count > 0 && html`<button class=${`count num${lit === s.lanes ? ' on' : ''}`} aria-label=${`${t('inc.evidence')}: ${count}`} onFocus=${() => onLit(s.lanes)} onBlur=${() => onLit(null)}>${count}</button>`}
    </li>`;
  })}</ol>`;
}

const Alternatives = ({ items, cause }) => html`<ul class="alternatives">
  ${[cause, ...items].map((a, k) => html`<li class=${k === 0 ? 'chosen' : ''}><span class="alt-bar" aria-hidden="true"><i style=${{ width: `${Math.max(1, a.confidence * 100)}%` }}></i></span><span class="mono">${a.resource}</span><b class="num">${fmt.prob(a.confidence)}</b><p class="dim">${titleOf(a)}</p></li>`)}
</ul>`;

/** Sentences below a heading of their own. */
const Doubts = ({ title, items }) => (items?.length > 0 ? html`<h3 class="why-head">${title}</h3><ul class="why">${items.map((s) => html`<li><span>${textOf(s)}</span></li>`)}</ul>` : null);

/** Closed incidents of the same fault, and what cured them. */
const Similar = ({ items }) => html`<table class="table tight"><tbody>${items.map((i) => html`<tr>
  <td><a href=${href(`incidents/${i.id}`)}>${fmt.stamp(Date.parse(i.opened))}</a></td><td class="mono wrap">${i.resource}</td><td class="dim">${t(`inc.match.${i.match}`)}</td>
  <td class="dim">${i.cured_by.length ? `${t('inc.cured_by')} ${i.cured_by.map((k) => name('rung', k)).join(', ')}` : t('inc.not_cured')}</td></tr>`)}</tbody></table>`;

function Todo({ incident }) {
  const actions = useApi(`actions?incident=${encodeURIComponent(incident.id)}`);
  return html`<${Await} of=${actions}>${({ items }) => {
    const mine = bySoonest(items);
    const wanted = incident.recommendation;
    return html`<div class="actions-list">
      ${mine.map((a, k) => html`<${ActionCard} key=${a.id} action=${a} first=${k === 0} />`)}
      ${wanted && !mine.some((a) => a.kind === wanted.action) && html`<article class="action"><header><${Shape} kind="person" token="text" size=${13} /><h3>${textOf(incident.step, doText(wanted.action, wanted.target))}</h3><span class="dim">${t('act.recommended')}</span></header></article>`}
      ${incident.no_step && html`<article class="action"><header><${Shape} kind="skipped" token="out" size=${13} /><h3>${textOf(incident.no_step.sentence, incident.no_step.reason)}</h3></header></article>`}
      ${mine.length === 0 && !wanted && !incident.no_step && html`<${Note} title=${t('act.none')} />`}
    </div>`;
  }}<//>`;
}

export function IncidentPage({ id }) {
  const answer = useApi(`incidents/${encodeURIComponent(id)}`);
  const [lit, setLit] = useState(null);
  const [folded, setFolded] = useState(false);
  const lanes = useMemo(() => drawn(answer.data?.lanes ?? []), [answer.data]);
  useKeys({ e: () => setFolded((f) => !f) });
  return html`<${Await} of=${answer} height=${500}>${(incident) => html`
    <${Head} incident=${incident} />
    <div class="incident-grid">
      <div class="todo"><${Panel} title=${t('inc.todo')} id="todo"><${Todo} incident=${incident} /><//></div>
      <div class="column">
        <${Panel} title=${t('inc.why')} id="why"><${Why} incident=${incident} lanes=${lanes} lit=${lit} onLit=${setLit} />
          <${Doubts} title=${t('inc.against')} items=${incident.against} /><${Doubts} title=${t('inc.would_change')} items=${incident.would_change} /><//>
        ${lanes.length > 0 ? html`<${Panel} title=${t('inc.evidence')} id="evidence" aside=${html`<span class="dim">${t('inc.axis')}</span>`} flush>${!folded && html`<${Evidence} lanes=${lanes} zero=${zeroOf(lanes)} lit=${lit} />`}<//>` : html`<${Panel}><${Note} title=${t('inc.no_detail')} /><//>`}
        ${incident.graph?.nodes?.length > 0 && html`<${Panel} title=${t('inc.graph')} id="graph"><${CauseGraph} graph=${incident.graph} cause=${incident.root_cause} /><//>`}
      </div>
      <div class="column side">
        <${Panel} title=${t('inc.alternatives')} id="alternatives"><${Alternatives} items=${incident.alternatives} cause=${incident.root_cause} /><//>
        <${Verdict} incident=${incident} />
        ${incident.similar?.length > 0 && html`<${Panel} title=${t('inc.similar')} id="similar" flush><${Similar} items=${incident.similar} /><//>`}
        ${incident.holders?.length > 0 && html`<${Panel} title=${t('inc.holders')} id="holders" flush><table class="table tight"><tbody>${incident.holders.map((h) => html`<tr><td>${h.team || h.user}</td><td>${h.purpose || '–'}</td><td class="r num">${h.servers.length > 2 ? t('inc.affects', { servers: h.servers.length, jobs: 0 }) : h.servers.join(', ')}</td></tr>`)}</tbody></table><//>`}
        ${incident.jobs?.length > 0 && html`<${Panel} title=${t('inc.jobs')} id="jobs" flush><table class="table tight"><tbody>${incident.jobs.map((job) => html`<tr><td class="mono">${job.id}</td><td>${job.tenant || '–'}</td><td class="r num">${job.gpus > 0 ? `${job.gpus} GPU` : ''}</td></tr>`)}</tbody></table><//>`}
      </div>
    </div>`}<//>`;
}

/** Time zero of the evidence: the first alert of the cause itself, or the first of all. */
function zeroOf(lanes) {
  const own = lanes.filter((l) => l.role === 'cause');
  return Math.min(...(own.length ? own : lanes).map((l) => l.first));
}
