// The evidence of an incident: one lane a kind of alert, however many there are. Time runs from the first alert
// on a logarithmic axis, so that a cascade of milliseconds and its echo after a minute are both seen.
import { cls, html, useState } from '../lib/html.js';
import { fmt, t } from '../lib/i18n.js';
import { Res } from './bits.js';
import { Shape, severityKind } from './status.js';

const UNIT_MS = 50; // linear below, logarithmic above
const squash = (ms) => Math.sign(ms) * Math.log10(1 + Math.abs(ms) / UNIT_MS);
const MARKS = [-60_000, -10_000, -1000, 0, 100, 1000, 10_000, 60_000, 600_000];
const HEIGHT = 20;
const CHIPS = 24;

/** Lanes as they are drawn: offsets in ms, with the first and the last. */
export const drawn = (lanes) => lanes.map((lane) => {
  const points = lane.offsets.map((s) => s * 1000);
  return { ...lane, points, first: Math.min(...points), last: Math.max(...points), repeats: lane.role === 'repeat' };
}).filter((lane) => lane.points.length > 0);

/** Whether a sentence speaks of a lane; it names the lane, or all of a type. */
export const speaksOf = (lanes, lane) => Boolean(lanes?.includes(lane.id) || lanes?.includes(lane.type));

/** The zero of the axis: the first alert that is not a precursor, which is the first of the cause's own lane. */
function scale(lanes, opened) {
  const from = Math.min(0, ...lanes.map((l) => l.first - opened));
  const to = Math.max(1000, ...lanes.map((l) => l.last - opened));
  const [a, b] = [squash(from), squash(to)];
  const x = (ms) => 1.5 + ((squash(ms - opened) - a) / (b - a)) * 97;
  return { x, marks: MARKS.filter((m) => m >= from && m <= to).map((m) => ({ at: x(opened + m), text: m === 0 ? '0' : `${m < 0 ? '−' : ''}${Math.abs(m) < 1000 ? `${Math.abs(m) / 1000}` : fmt.dur(Math.abs(m) / 1000)}${Math.abs(m) < 1000 ? ` ${t('unit.s')}` : ''}` })) };
}

export function Evidence({ lanes, zero, lit }) {
  const [open, setOpen] = useState(null);
  const { x, marks } = scale(lanes, zero);
  return html`<div class="lanes">
    <div class="lane axis" aria-hidden="true"><span></span><span></span><div class="track">${marks.map((m) => html`<i style=${{ left: `${m.at}%` }}>${m.text}</i>`)}</div></div>
    <ul>
      ${lanes.map((lane) => {
        const key = lane.id;
        const on = speaksOf(lit, lane);
        const expanded = open === key;
        return html`<li class=${cls('lane-item', on && 'lit', lane.repeats && 'repeat', lane.role === 'cause' && 'cause')}>
          <button class="lane" aria-expanded=${expanded ? 'true' : 'false'} onClick=${() => setOpen(expanded ? null : key)}>
            <span class="lane-name"><${Shape} kind=${severityKind(lane.severity)} token=${lane.severity === 'info' ? 'out' : undefined} size=${11} label=${t(`severity.${lane.severity}`)} /><span class="mono">${lane.type}</span><small class="dim">${lane.code}</small></span>
            <b class="num">${lane.count}</b>
            <svg class="track" viewBox=${`0 0 100 ${HEIGHT}`} preserveAspectRatio="none" aria-hidden="true">
              ${marks.map((m) => html`<line x1=${m.at} x2=${m.at} y1="0" y2=${HEIGHT} class="mark" />`)}
              ${lane.points.map((p) => html`<line x1=${x(p)} x2=${x(p)} y1="4" y2=${HEIGHT - 4} class="tick" />`)}
            </svg>
          </button>
          ${expanded && html`<div class="lane-open"><p>${lane.message && `“${lane.message}” `}<span class="dim">${lane.source}${lane.repeats ? ` ${t('inc.repeat')}` : ''}</span></p><p class="chips">${(lane.resources ?? []).slice(0, CHIPS).map((r) => html`<${Res} id=${r} />`)}${lane.resources?.length > CHIPS && html`<span class="dim">${t('more', { n: lane.resources.length - CHIPS })}</span>`}</p></div>`}
        </li>`;
      })}
    </ul>
  </div>`;
}
