// How right the causes were, by what people said about them.
import { cls, html } from '../lib/html.js';
import { useApi } from '../lib/api.js';
import { fmt, t } from '../lib/i18n.js';
import { useFaultTitle } from './bits.js';
import { Await, Panel } from './panel.js';

const SIZE = 200;
const NEAR = 0.05; // apart, what is said and what came true are the same to a person
const EDGE = { left: 38, bottom: 26, top: 8, right: 8 };
const x = (p) => EDGE.left + p * (SIZE - EDGE.left - EDGE.right);
const y = (p) => SIZE - EDGE.bottom - p * (SIZE - EDGE.top - EDGE.bottom);

/** Said against came true: a dot a bin, as large as it has incidents; on the line, the confidence is right. */
function Curve({ bins }) {
  const filled = bins.filter((b) => b.n > 0);
  const most = Math.max(1, ...filled.map((b) => b.n));
  const text = filled.map((b) => t('his.bin', { from: fmt.num(b.from * 100), to: fmt.pct(b.to), right: b.right, n: b.n })).join('; ');
  return html`<svg class="curve" viewBox=${`0 0 ${SIZE} ${SIZE}`} role="img" aria-label=${`${t('his.curve')}: ${text}`}>
    ${[0, 0.5, 1].map((p) => html`<line class="tick" x1=${x(0)} x2=${x(1)} y1=${y(p)} y2=${y(p)} /><text x=${EDGE.left - 5} y=${y(p) + 3} text-anchor="end">${fmt.num(p * 100)}</text><text x=${x(p)} y=${SIZE - EDGE.bottom + 13} text-anchor="middle">${fmt.num(p * 100)}</text>`)}
    <line class="ideal" x1=${x(0)} y1=${y(0)} x2=${x(1)} y2=${y(1)} />
    <polyline class="path" points=${filled.map((b) => `${x(b.confidence)},${y(b.right / b.n)}`).join(' ')} />
    ${filled.map((b) => html`<circle cx=${x(b.confidence)} cy=${y(b.right / b.n)} r=${2.5 + 4.5 * Math.sqrt(b.n / most)}><title>${t('his.bin', { from: fmt.num(b.from * 100), to: fmt.pct(b.to), right: b.right, n: b.n })}</title></circle>`)}
    <text class="axis" x=${x(0.5)} y=${SIZE - 2} text-anchor="middle">${t('his.said')}</text><text class="axis" x=${-y(0.5)} y="8" transform="rotate(-90)" text-anchor="middle">${t('his.true')}</text>
  </svg>`;
}

/** What was said against what came true, over all confidences, in words. */
function inWords(bins) {
  const n = bins.reduce((sum, b) => sum + b.n, 0);
  if (n === 0) return '';
  const said = bins.reduce((sum, b) => sum + (b.confidence ?? 0) * b.n, 0) / n;
  const right = bins.reduce((sum, b) => sum + b.right, 0) / n;
  return t(said - right > NEAR ? 'his.over' : right - said > NEAR ? 'his.under' : 'his.fits', { said: fmt.pct(said), right: fmt.pct(right) });
}

const seconds = (v) => (v == null ? '–' : v < 1 ? t('his.at_once') : fmt.dur(v));

export function Hindsight() {
  const answer = useApi('incidents/record');
  const titled = useFaultTitle();
  return html`<${Panel} title=${t('his.title')} id="hindsight" aside=${answer.data && html`<span class="dim">${t('his.judged', { judged: answer.data.judged, closed: answer.data.closed })}</span>`}><${Await} of=${answer}>${(r) => {
    if (r.judged === 0) return html`<p class="lead">${t('his.none')}</p><p class="dim">${t('his.none_hint')}</p>`;
    const figures = [[fmt.pct(r.right / r.judged), 'his.rate', t('his.rate_tip', r)], [seconds(r.seconds_p50), 'his.p50'], [seconds(r.seconds_p95), 'his.p95'], [r.calibration_error == null ? '–' : fmt.fixed(r.calibration_error, 2), 'his.error', t('his.error_tip')], [fmt.num(r.no_incident), 'his.no_incident']];
    return html`<p class=${cls('lead', !r.enough && 'c-warning')}>${t(r.enough ? 'his.verdict' : 'his.too_few', r)}</p>
    <div class=${cls('hindsight', !r.enough && 'few')}>
      <dl class="big">${figures.map(([value, label, tip]) => html`<div title=${tip}><dd class="num">${value}</dd><dt>${t(label)}</dt></div>`)}</dl>
      <figure><figcaption>${t('his.curve')}</figcaption><${Curve} bins=${r.bins} />${r.enough && html`<p>${inWords(r.bins)}</p>`}<p class="dim">${t('his.how')}</p></figure>
      <div class="scroll"><table class="table tight"><thead><tr><th>${t('his.fault')}</th><th class="r">${t('his.right')}</th><th class="r">${t('his.took')}</th></tr></thead><tbody>${r.faults.map((f) => html`<tr><td>${f.fault === '' ? t('cor.no_incident') : f.fault === 'unknown' ? t('cor.other') : titled(f.fault)}</td><td class="r num">${t('pre.said_of', { hits: f.right, ended: f.n })}</td><td class="r num">${seconds(f.seconds_p50)}</td></tr>`)}</tbody></table></div>
    </div>
    <p class="dim">${r.parameters > 0 ? t('his.learned', { version: r.parameters }) : t('his.unlearned')}</p>`;
  }}<//><//>`;
}
