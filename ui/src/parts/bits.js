// Small things that several pages use.
import { cls, html } from '../lib/html.js';
import { firstSentence, fmt, inWords, name, textOf, t } from '../lib/i18n.js';
import { useApi } from '../lib/api.js';
import { href } from '../lib/router.js';

/** A resource as a link to its server or switch. */
export const Res = ({ id, text }) => html`<a class="mono res" href=${href(`servers/${id.split('/')[0]}${id.includes('/') ? `?part=${encodeURIComponent(id.split('/')[1])}` : ''}`)}>${text ?? id}</a>`;

/** The sign of the product. */
export const Mark = () => html`<svg width="22" height="22" viewBox="0 0 32 32" aria-hidden="true"><path d="M3 21c4-10 10-10 13-1 3-9 9-9 13 1" fill="none" stroke="var(--action)" stroke-width="3.2" stroke-linecap="round" stroke-linejoin="round" /><circle cx="16" cy="8.5" r="2.7" fill="var(--critical-fill)" /></svg>`;

export const Key = ({ k }) => html`<kbd>${k}</kbd>`;

/** A choice of a few, as a group of radio buttons that look like one control. */
export const Segments = ({ label, value, options, onChange }) => html`
  <div class="segments" role="radiogroup" aria-label=${label}>
    ${options.map(([key, text]) => html`<button type="button" role="radio" aria-checked=${key === value ? 'true' : 'false'} class=${cls(key === value && 'on')} onClick=${() => onChange(key)}>${text}</button>`)}
  </div>`;

/** A probability as a number and a bar. */
export const Confidence = ({ p, wide }) => html`<span class=${cls('conf', wide && 'wide')} title=${t('inc.confidence_tip')}><span class="bar" aria-hidden="true"><i style=${{ width: `${p * 100}%` }}></i></span><b>${fmt.prob(p)}</b></span>`;

const MINUTE = 60;
const MARKS = [600, 3600, 6 * 3600, 86_400, 7 * 86_400, 30 * 86_400];
/** Where a moment lies on a logarithmic axis from now to the horizon, in percent: an hour and a month both have room. */
const position = (seconds, horizon) => (Math.log1p(Math.min(horizon, Math.max(0, seconds)) / MINUTE) / Math.log1p(horizon / MINUTE)) * 100;

/** The interval of a forecast: a band from p10 to p90 and a mark at p50. An end that is not known runs to the edge. */
export function Interval({ from, mid, to, now, horizon }) {
  const ahead = (iso) => (iso ? (Date.parse(iso) - now) / 1000 : horizon);
  const at = (iso) => position(ahead(iso), horizon);
  const text = mid ? `${t('in', { age: fmt.dur(ahead(mid)) })} (${fmt.dur(ahead(from))} – ${to ? fmt.dur(ahead(to)) : '∞'})` : '–';
  return html`<svg class="interval" viewBox="0 0 100 14" preserveAspectRatio="none" role="img" aria-label=${text}>
    ${MARKS.filter((s) => s <= horizon).map((s) => html`<line x1=${position(s, horizon)} x2=${position(s, horizon)} y1="1" y2="13" class="tick" />`)}
    <line x1="0" x2="100" y1="7" y2="7" class="axis" />
    ${from && html`<rect x=${at(from)} width=${Math.max(1, at(to) - at(from))} y="4" height="6" rx="1.5" class="band" />`}
    ${mid && html`<rect x=${at(mid) - 0.8} width="1.6" y="1.5" height="11" class="mid" />`}
  </svg>`;
}

/** The marks with a label: as many as fit, the last one always. */
function labelled(horizon) {
  const marks = MARKS.filter((s) => s <= horizon);
  return marks.filter((s, k) => k === marks.length - 1 || (k % 2 === 1 && position(marks.at(-1), horizon) - position(s, horizon) > 35));
}

/** The labels of a column of intervals. */
export const IntervalScale = ({ horizon }) => html`<span class="interval-scale" aria-hidden="true">${labelled(horizon).map((s) => html`<i class=${position(s, horizon) > 90 ? 'end' : ''} style=${{ left: `${position(s, horizon)}%` }}>${fmt.dur(s)}</i>`)}</span>`;

/** How far predictions look ahead, in seconds: the longest horizon, or a day. */
export const horizonOf = (answer) => answer?.horizon_seconds || 86_400;

/** Copies text; the label says when it is done. */
export function copy(text, done) {
  navigator.clipboard?.writeText(text).then(done, () => {});
}

/** What a cause is called. */
export const titleOf = (cause) => inWords(cause.title, cause.fault);

/** What faults are called, by the records that the server has. */
export function useFaultTitle() {
  const items = useApi('faults').data?.items;
  return (fault) => inWords(items?.find((f) => f.fault === fault)?.title, name('fault', fault));
}

/** What happened, in one sentence. */
export const summaryOf = (incident) => (incident ? textOf(incident.summary, firstSentence(incident.explanation)) || incident.root_cause.resource : '');
