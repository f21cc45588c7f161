// Two hours of alerts as bars and, under them, the incidents that they became.
import { html } from '../lib/html.js';
import { fmt, t } from '../lib/i18n.js';
import { useApi } from '../lib/api.js';
import { href } from '../lib/router.js';
import { summaryOf } from './bits.js';
import { severityKind } from './status.js';

const SHORTEST = 30; // bins
const STEPS = [1, 2, 5, 10, 15, 30, 60].map((minutes) => minutes * 60_000); // between two marks of the axis

export function Storm({ history }) {
  const incidents = useApi('incidents').data?.items ?? [];
  const lead = Math.max(0, Math.min(history.alerts.length - SHORTEST, history.alerts.findIndex((v) => v > 0) - 3)); // a young system has no hours to show
  const bins = history.alerts.slice(lead);
  const start = Date.parse(history.start) + lead * history.step * 1000;
  const span = bins.length * history.step * 1000;
  const total = bins.reduce((a, b) => a + b, 0);
  const height = (v) => Math.sqrt(v) / Math.sqrt(Math.max(9, ...bins));
  const title = t('fleet.storm', { age: fmt.dur(span / 1000) });
  const shown = history.incidents.filter((i) => Date.parse(i.time) >= start);
  const step = STEPS.find((s) => span / s <= 10) ?? STEPS.at(-1);
  const marks = Array.from({ length: Math.floor((start + span) / step) - Math.ceil(start / step) + 1 }, (_, k) => (Math.ceil(start / step) + k) * step);
  const byId = new Map(incidents.map((i) => [i.id, i]));
  return html`<section class="storm" aria-label=${title}>
    <header><b>${title}</b><span>${t('fleet.storm_text', { alerts: total, incidents: shown.length })}</span></header>
    <div class="storm-plot">
      <svg viewBox=${`0 0 ${bins.length} 40`} preserveAspectRatio="none" aria-hidden="true">${bins.map((v, k) => v > 0 && html`<rect x=${k + 0.1} width="0.8" y=${40 - height(v) * 40} height=${height(v) * 40} />`)}</svg>
      ${shown.map((i) => html`<a class=${`pin c-${severityKind(byId.get(i.id)?.severity)}`} style=${{ left: `${((Date.parse(i.time) - start) / span) * 100}%` }} href=${href(`incidents/${i.id}`)} title=${summaryOf(byId.get(i.id))} aria-label=${summaryOf(byId.get(i.id)) || i.id}></a>`)}
    </div>
    <div class="storm-axis" aria-hidden="true">${marks.filter((ms) => ms - start > span / 50 && start + span - ms > span / 50).map((ms) => html`<i style=${{ left: `${((ms - start) / span) * 100}%` }}>${fmt.minute(ms)}</i>`)}</div>
  </section>`;
}
