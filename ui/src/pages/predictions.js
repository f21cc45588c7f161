// What fails next, when, and how reliable predictions are.
import { cls, html, useMemo, useState } from '../lib/html.js';
import { useApi } from '../lib/api.js';
import { clock } from '../lib/clock.js';
import { fmt, inWords, name, textOf, t } from '../lib/i18n.js';
import { useKeys } from '../lib/keys.js';
import { go, href } from '../lib/router.js';
import { Interval, IntervalScale, horizonOf } from '../parts/bits.js';
import { Await, Note, Panel } from '../parts/panel.js';
import { Shape } from '../parts/status.js';

/** Predictions by when they are due; those without a time come last, likely ones first. */
export const soonest = (items) => [...(items ?? [])].sort((a, b) => (Date.parse(a.eta_p50 ?? '') || Infinity) - (Date.parse(b.eta_p50 ?? '') || Infinity) || b.probability - a.probability);

/** What fails, in a few words. */
export const failureOf = (p) => (p.failure ? inWords(p.failure_title, p.failure) : name('plot', p.metric));

const pageOf = (p) => `servers/${p.server}${p.resource.startsWith(`${p.server}/`) ? `?part=${p.resource.slice(p.server.length + 1)}` : ''}`;
/** A measured value with as many digits as it deserves. */
const limitOf = (p) => (p.limit?.below !== undefined ? `< ${fmt.num(p.limit.below, 2)}` : p.limit?.above !== undefined ? `> ${fmt.num(p.limit.above, 2)}` : '');

const Past = ({ items }) => html`<${Panel} title=${t('pre.past')} id="past" flush><div class="scroll"><table class="table tight"><tbody>
  ${items.map((p) => html`<tr><td><${Shape} kind=${p.state === 'came_true' ? 'done' : p.state === 'expired' ? 'failed' : 'later'} token=${p.state === 'came_true' ? 'ok' : 'out'} label=${t(`pre.${p.state}`)} /></td><td class="num dim" title=${fmt.stamp(Date.parse(p.time))}>${fmt.day(Date.parse(p.time))}</td><td><a class="mono" href=${href(pageOf(p))}>${p.resource}</a></td><td>${failureOf(p)}</td><td class="r num">${p.said ? fmt.prob(p.said) : ''}</td><td>${t(`pre.${p.state}`)}</td></tr>`)}</tbody></table></div><//>`;

const JUDGED = 5; // predictions that have ended before a share says anything

/** Predictions by steps of 20 %, as bars that show how many of them came true. */
function Bins({ bins }) {
  const most = Math.max(1, ...bins.map((b) => b.ended));
  return html`<ul class="bins">${bins.map((b) => html`<li><span class="dim num">${t('pre.said_range', { from: fmt.num(b.from * 100), to: fmt.pct(b.to) })}</span><span class="bins-bar" aria-hidden="true">${b.ended > 0 && html`<i class="right" style=${{ width: `${(b.came_true / most) * 100}%` }}></i><i class="wrong" style=${{ width: `${((b.ended - b.came_true) / most) * 100}%` }}></i>`}</span><b class="num">${b.ended > 0 ? t('pre.said_of', { hits: b.came_true, ended: b.ended }) : '–'}</b></li>`)}</ul>`;
}

/** Hits, false alarms and misses. A share is named only where enough has ended to mean something. */
function Trust({ now }) {
  const answer = useApi('predictions/record');
  return html`<${Panel} title=${t('pre.trust')} id="trust" aside=${answer.data && html`<span class="dim">${t('pre.window', { seconds: Math.round((now - Date.parse(answer.data.since)) / 86_400_000) * 86_400 })}</span>`}><${Await} of=${answer}>${(r) => {
    const ended = r.came_true + r.expired;
    const figures = [[r.came_true, 'pre.hits', 'c-ok'], [r.expired, 'pre.false'], [r.missed, 'pre.missed'], [r.averted, 'pre.averted_n', '', t('pre.averted_tip')], [r.lead_seconds ? fmt.dur(r.lead_seconds) : '–', 'pre.lead']];
    return html`<p class="lead">${t(ended < JUDGED ? 'pre.too_little' : 'pre.verdict', { hits: r.came_true, ended })}</p>
    <div class="trust-grid">
      <dl class="big">${figures.map(([value, label, tone, tip]) => html`<div title=${tip}><dd class=${cls('num', tone)}>${typeof value === 'number' ? fmt.num(value) : value}</dd><dt>${t(label)}</dt></div>`)}</dl>
      <figure><figcaption>${t('pre.said')}</figcaption>${r.said.every((b) => b.ended === 0) ? html`<p class="dim">${t('pre.said_none')}</p>` : html`<${Bins} bins=${r.said} /><p class="key"><i class="swatch right"></i><span>${t('pre.hits')}</span><i class="swatch wrong"></i><span>${t('pre.false')}</span></p>`}</figure>
    </div>`;
  }}<//><//>`;
}

export function PredictionsPage() {
  const answer = useApi('predictions');
  const [at, setAt] = useState(0);
  const items = useMemo(() => soonest((answer.data?.items ?? []).filter((p) => p.state === 'open')), [answer.data]);
  const past = (answer.data?.items ?? []).filter((p) => p.state !== 'open').slice(0, 50);
  const horizon = horizonOf(answer.data);
  useKeys({ j: () => setAt((i) => Math.min(items.length - 1, i + 1)), k: () => setAt((i) => Math.max(0, i - 1)), Enter: () => items[at] && go(pageOf(items[at])) });
  return html`<${Await} of=${answer} height=${400}>${() => html`
    <h1>${items.length ? t('pre.head', { n: items.length }) : t('pre.empty')}</h1>
    <div class="predictions-grid">
      <${Panel} title=${t('fleet.next')} id="next" flush>${items.length === 0 ? html`<${Note} title=${t('pre.empty')} hint=${t('pre.empty_hint')} />` : html`<div class="scroll"><table class="table">
        <thead><tr><th></th><th>${t('pre.part')}</th><th>${t('pre.what')}</th><th class="when">${t('pre.when')}<${IntervalScale} horizon=${horizon} /></th><th class="r">p50</th><th class="r">p10 – p90</th><th class="r">${t('pre.chance')}</th><th class="r">${t('pre.now')}</th><th class="r">${t('dev.limit')}</th><th>${t('pre.signals')}</th><th>${t('pre.job')}</th></tr></thead>
        <tbody>${items.map((p, k) => html`<tr class=${cls('row', k === at && 'selected')} onClick=${() => go(pageOf(p))}>
          <td><${Shape} kind="predicted" label=${t('state.predicted')} /></td><td><a class="mono" href=${href(pageOf(p))} title=${textOf(p.sentence, p.explanation)}>${p.resource}</a></td><td>${failureOf(p)}</td>
          <td class="when"><${Interval} from=${p.eta_p10} mid=${p.eta_p50} to=${p.eta_p90} now=${clock.now()} horizon=${horizon} /></td><td class="r num">${age(p.eta_p50)}</td><td class="r num dim">${age(p.eta_p10)} – ${p.eta_p90 ? age(p.eta_p90) : '∞'}</td><td class="r num"><b>${fmt.prob(p.probability)}</b></td>
          <td class="r num">${fmt.num(p.value)} ${p.unit}</td><td class=${cls('r num', p.limit?.source === 'default' && 'dim')} title=${p.limit?.source === 'default' ? t('dev.default_hint') : ''}>${limitOf(p)}${p.limit?.source === 'default' ? '*' : ''}</td><td class="mono dim signal" title=${p.evidence.map((e) => `${e.metric} ${fmt.pct(e.share)}`).join(', ')}>${p.evidence.slice(0, 2).map((e) => e.metric).join(', ')}</td><td class="mono">${p.job ?? '–'}</td></tr>`)}</tbody></table></div>`}<//>
      <div class="predictions-past"><${Trust} now=${clock.now()} />${past.length > 0 && html`<${Past} items=${past} />`}</div>
    </div>`}<//>`;
}

function age(iso) {
  if (!iso) return '–';
  const seconds = (Date.parse(iso) - clock.now()) / 1000;
  return fmt.dur(seconds > 5 * 86_400 ? Math.round(seconds / 86_400) * 86_400 : seconds);
}
