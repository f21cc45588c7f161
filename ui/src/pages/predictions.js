// What fails next, and when?
import { cls, html, useMemo, useState } from '../lib/html.js';
import { useApi } from '../lib/api.js';
import { clock } from '../lib/clock.js';
import { fmt, name, say, t } from '../lib/i18n.js';
import { useKeys } from '../lib/keys.js';
import { go, href } from '../lib/router.js';
import { Interval, IntervalScale, horizonOf } from '../parts/bits.js';
import { Await, Note, Panel } from '../parts/panel.js';
import { Shape } from '../parts/status.js';

/** Predictions by when they are due; those without a time come last, likely ones first. */
export const soonest = (items) => [...(items ?? [])].sort((a, b) => (Date.parse(a.eta_p50 ?? '') || Infinity) - (Date.parse(b.eta_p50 ?? '') || Infinity) || b.probability - a.probability);

/** What fails, in a few words. */
export const failureOf = (p) => (p.failure ? name('fault', p.failure) : name('plot', p.metric));

const pageOf = (p) => `servers/${p.server}${p.resource.startsWith(`${p.server}/`) ? `?part=${p.resource.slice(p.server.length + 1)}` : ''}`;
/** A measured value with as many digits as it deserves. */
export const round = (v) => fmt.num(Number(v.toPrecision(Math.abs(v) < 1000 ? 3 : 4)), 1);
const limitOf = (p) => (p.limit?.below !== undefined ? `< ${fmt.num(p.limit.below, 2)}` : p.limit?.above !== undefined ? `> ${fmt.num(p.limit.above, 2)}` : '');

const Past = ({ items }) => html`<${Panel} title=${t('pre.past')} id="past" flush><div class="scroll"><table class="table tight"><tbody>
  ${items.map((p) => html`<tr><td><${Shape} kind=${p.state === 'came_true' ? 'done' : 'later'} token="out" label=${t(`pre.${p.state}`)} /></td><td class="num dim">${fmt.stamp(Date.parse(p.time))}</td><td class="mono">${p.resource}</td><td>${failureOf(p)}</td><td>${t(`pre.${p.state}`)}</td></tr>`)}</tbody></table></div><//>`;

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
          <td><${Shape} kind="predicted" label=${t('state.predicted')} /></td><td><a class="mono" href=${href(pageOf(p))} title=${say(p.sentence, p.explanation)}>${p.resource}</a></td><td>${failureOf(p)}</td>
          <td class="when"><${Interval} from=${p.eta_p10} mid=${p.eta_p50} to=${p.eta_p90} now=${clock.now()} horizon=${horizon} /></td><td class="r num">${age(p.eta_p50)}</td><td class="r num dim">${age(p.eta_p10)} – ${p.eta_p90 ? age(p.eta_p90) : '∞'}</td><td class="r num"><b>${fmt.prob(p.probability)}</b></td>
          <td class="r num">${round(p.value)} ${p.unit}</td><td class="r num">${limitOf(p)}</td><td class="mono dim">${p.evidence.slice(0, 2).map((e) => e.metric).join(', ')}</td><td class="mono">${p.job ?? '–'}</td></tr>`)}</tbody></table></div>`}<//>
      ${past.length > 0 && html`<${Past} items=${past} />`}
    </div>`}<//>`;
}

function age(iso) {
  if (!iso) return '–';
  const seconds = (Date.parse(iso) - clock.now()) / 1000;
  return fmt.dur(seconds > 5 * 86_400 ? Math.round(seconds / 86_400) * 86_400 : seconds);
}
