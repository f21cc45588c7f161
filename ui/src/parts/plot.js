// A time plot on uPlot: the band from lowest to highest, the mean, the peers, and a forecast as a fan that ends
// where the limit is crossed. Times are seconds, as uPlot and Prometheus have them.
import uPlot from 'uplot';
import { html, useEffect, useRef, useState } from '../lib/html.js';
import { fmt, name, t } from '../lib/i18n.js';
import { shade, token, useTheme } from '../lib/theme.js';

const AXIS = 54;
const DAY = 86_400;

/** Joins history and forecast on one time axis; what is not known is null. */
function columns({ times, min, avg, max, peer, forecast }) {
  const ahead = forecast?.times ?? [];
  const blank = (count) => new Array(count).fill(null);
  const past = (values) => (values ?? blank(times.length)).concat(blank(ahead.length));
  const future = (values) => blank(times.length).concat(values ?? blank(ahead.length));
  return [times.concat(ahead), past(min), past(max), past(avg), past(peer), future(forecast?.p10), future(forecast?.p90), future(forecast?.p50)];
}

/** The bounds that the device itself gives, without the one that is the limit. */
const others = (plot, limit) => (plot.thresholds ?? []).filter((b) => !(plot.limit?.source === 'device' && b.value === limit));

/** The span of values to show; a limit is included when a forecast runs to it, and like any bound when it is near. */
function valueRange(plot, limit) {
  const values = [...plot.min, ...plot.max, ...(plot.peer ?? []), ...(plot.forecast?.p50.slice(0, 1) ?? [])].filter((v) => v !== null);
  if (values.length === 0) return [0, 1];
  let [low, high] = [Math.min(...values), Math.max(...values)];
  const span = high - low || Math.abs(high) * 0.04 || 1;
  if (high === low) { high += span / 2; low -= span / 2; }
  const near = (v) => v < high + span && v > low - span;
  const shown = others(plot, limit).map((b) => b.value).filter(near);
  if (limit !== undefined && (plot.forecast || near(limit))) shown.push(limit);
  for (const v of shown) { low = Math.min(low, v - span * 0.12); high = Math.max(high, v + span * 0.12); }
  return [low - span * 0.06, high + span * 0.06];
}

function options({ plot, width, height, now, range, last, sync }) {
  const limit = plot.limit ?? plot.forecast?.limit;
  const bound = limit?.above ?? limit?.below;
  const font = `11px ${getComputedStyle(document.body).fontFamily}`;
  const colour = { line: token('action'), band: shade('action', 0.2), fan: shade('predicted', 0.22), mid: token('predicted') };
  const axis = { stroke: token('text-3'), font, ticks: { show: false }, grid: { stroke: token('line'), width: 1 } };
  const narrow = width < 520;
  const hidden = { stroke: 'transparent', width: 0, points: { show: false } };

  const draw = (u) => {
    const { ctx } = u;
    const { left, top, width: w, height: h } = u.bbox;
    const ratio = devicePixelRatio;
    const x = (seconds) => Math.round(u.valToPos(seconds, 'x', true));
    ctx.save();
    ctx.beginPath();
    ctx.rect(left, top, w, h);
    ctx.clip();
    ctx.textAlign = 'left';
    ctx.textBaseline = 'alphabetic';
    ctx.font = `${11 * ratio}px ${getComputedStyle(document.body).fontFamily}`;
    const nowX = x(now / 1000);
    if (nowX < left + w) {
      ctx.fillStyle = shade('text', 0.025);
      ctx.fillRect(nowX, top, left + w - nowX, h);
      ctx.fillStyle = token('line-strong');
      ctx.fillRect(nowX, top, ratio, h);
      if (plot.forecast && !narrow) { ctx.fillStyle = token('text-3'); ctx.fillText(t('dev.now'), nowX + 5 * ratio, top + 12 * ratio); }
    }
    const written = []; // where a label stands; one that would run into another stands beside it
    const level = (value, label, colour) => {
      const y = Math.round(u.valToPos(value, 'y', true));
      ctx.strokeStyle = colour;
      ctx.lineWidth = ratio;
      ctx.setLineDash([5 * ratio, 4 * ratio]);
      ctx.beginPath();
      ctx.moveTo(left, y);
      ctx.lineTo(left + w, y);
      ctx.stroke();
      ctx.setLineDash([]);
      const text = `${label} ${fmt.num(value)} ${plot.unit}`;
      const base = y - top < 16 * ratio ? y + 13 * ratio : y - 5 * ratio;
      const at = Math.max(left + 6 * ratio, ...written.filter((w) => Math.abs(w.base - base) < 13 * ratio).map((w) => w.end + 12 * ratio));
      written.push({ text, at, base, colour, end: at + ctx.measureText(text).width });
      return y;
    };
    for (const b of others(plot, bound)) level(b.value, name('bound', b.bound), token(b.bound.endsWith('_caution') ? 'warning' : b.bound.startsWith('range_') ? 'text-3' : 'critical'));
    if (bound !== undefined) {
      const y = level(bound, t(limit.source === 'default' ? 'dev.limit_default' : 'dev.limit'), token('critical'));
      if (plot.forecast) crossings(ctx, u, x, y, ratio);
    }
    for (const w of written) { // above all lines
      ctx.strokeStyle = token('surface');
      ctx.lineWidth = 4 * ratio;
      ctx.strokeText(w.text, w.at, w.base);
      ctx.fillStyle = w.colour;
      ctx.fillText(w.text, w.at, w.base);
    }
    ctx.restore();
  };

  const crossings = (ctx, u, x, y, ratio) => {
    const { top } = u.bbox;
    for (const [level, iso] of [['p10', plot.forecast.eta_p10], ['p50', plot.forecast.eta_p50], ['p90', plot.forecast.eta_p90]].filter(([, when]) => when && Date.parse(when) > now)) {
      const px = x(Date.parse(iso) / 1000);
      ctx.strokeStyle = shade('predicted', level === 'p50' ? 0.9 : 0.45);
      ctx.lineWidth = ratio;
      ctx.beginPath();
      ctx.moveTo(px, y);
      ctx.lineTo(px, top + 16 * ratio);
      ctx.stroke();
      ctx.fillStyle = colour.mid;
      ctx.beginPath();
      ctx.arc(px, y, (level === 'p50' ? 4.5 : 3) * ratio, 0, 7);
      ctx.fill();
      ctx.fillStyle = token(level === 'p50' ? 'text' : 'text-2');
      ctx.textAlign = 'center';
      const ahead = (Date.parse(iso) - now) / 1000;
      ctx.fillText(`${narrow ? '' : `${level} `}${fmt.dur(ahead > 5 * DAY ? Math.round(ahead / DAY) * DAY : ahead)}`, px, top + 11 * ratio);
      ctx.textAlign = 'left';
    }
  };

  return {
    width, height, padding: [6, 8, last ? 0 : 4, 0], legend: { show: false },
    cursor: { sync: sync ? { key: sync } : undefined, y: false, points: { size: 6, fill: colour.line }, drag: { x: true, y: false } },
    scales: { x: { range: () => range }, y: { range: valueRange(plot, bound) } },
    axes: [{ ...axis, show: last, size: 24, space: 70, values: (u, ticks) => ticks.map((s) => (range[1] - range[0] > 2 * DAY ? fmt.day(s * 1000) : range[1] - range[0] < 600 ? fmt.clock(s * 1000) : fmt.minute(s * 1000))) }, { ...axis, size: AXIS, space: 26, values: (u, ticks, axis, space, step) => ticks.map((v) => (bits(plot) ? fmt.compact(v) : Math.abs(v) < 0.01 && v !== 0 ? v.toExponential(1) : fmt.tick(v, step))) }],
    bands: [{ series: [2, 1], fill: colour.band }, { series: [6, 5], fill: colour.fan }],
    series: [{}, hidden, hidden, { stroke: colour.line, width: 1.5, points: { show: false } }, { stroke: token('text-3'), width: 1, dash: [2, 3], points: { show: false } }, hidden, hidden, { stroke: colour.mid, width: 1.75, dash: [6, 4], points: { show: false } }],
    hooks: { draw: [draw] },
  };
}

const bits = (plot) => plot.unit === 'bit/s';
const figure = (plot, v) => (v == null ? '–' : bits(plot) ? `${fmt.compact(v)}bit/s` : Math.abs(v) < 0.01 && v !== 0 ? v.toExponential(1) : fmt.num(v));

/** One plot with its title and what it reads under the cursor. */
export function Plot({ plot, height = 110, now, range, last, sync }) {
  const box = useRef();
  const chart = useRef(null);
  const [at, setAt] = useState(null);
  const [width, setWidth] = useState(0);
  const theme = useTheme();
  useEffect(() => {
    const watch = new ResizeObserver(([entry]) => setWidth(Math.floor(entry.contentRect.width)));
    watch.observe(box.current);
    return () => watch.disconnect();
  }, []);
  useEffect(() => {
    if (!width) return undefined;
    const settings = options({ plot, width, height: height + (last ? 24 : 0), now, range, last, sync });
    settings.hooks.setCursor = [(u) => setAt(u.cursor.idx ?? null)];
    chart.current = new uPlot(settings, columns(plot), box.current);
    return () => chart.current.destroy();
  }, [plot, width, height, range[0], range[1], theme, last, document.documentElement.lang]);
  const i = at !== null && at < plot.times.length ? at : Math.max(0, plot.avg.findLastIndex((v) => v !== null));
  return html`<figure class="plot">
    <figcaption><b>${name('plot', plot.metric)}</b><span class="dim mono" title=${plot.query}>${plot.subject}</span>${plot.peer && html`<span class="dim peers">${t('dev.peers')}</span>`}
      <span class="readout num">${at !== null && at < plot.times.length && html`<span class="dim">${fmt.stamp(plot.times[i] * 1000)}</span> `}<b>${figure(plot, plot.avg[i])}</b> ${bits(plot) ? '' : plot.unit} <span class="dim">${figure(plot, plot.min[i])}–${figure(plot, plot.max[i])}</span></span>
    </figcaption>
    <div ref=${box}></div>
  </figure>`;
}

/** Several lines on one axis, as the answer of query_range has them. */
export function Lines({ times, series, height = 300, colours }) {
  const box = useRef();
  const [width, setWidth] = useState(0);
  const theme = useTheme();
  useEffect(() => {
    const watch = new ResizeObserver(([entry]) => setWidth(Math.floor(entry.contentRect.width)));
    watch.observe(box.current);
    return () => watch.disconnect();
  }, []);
  useEffect(() => {
    if (!width) return undefined;
    const font = `11px ${getComputedStyle(document.body).fontFamily}`;
    const axis = { stroke: token('text-3'), font, ticks: { show: false }, grid: { stroke: token('line'), width: 1 } };
    const chart = new uPlot({
      width, height, padding: [8, 8, 0, 0], legend: { show: false }, cursor: { y: false },
      axes: [{ ...axis, size: 26, space: 80, values: (u, ticks) => ticks.map((s) => fmt.minute(s * 1000)) }, { ...axis, size: AXIS, values: (u, ticks, axis, space, step) => ticks.map((v) => fmt.tick(v, step)) }],
      series: [{}, ...series.map((_, k) => ({ stroke: token(colours[k % colours.length]), width: 1.5, dash: k > 4 ? [6, 3] : undefined, points: { show: false } }))],
    }, [times, ...series.map((s) => s.values)], box.current);
    return () => chart.destroy();
  }, [times, series, width, height, theme, document.documentElement.lang]);
  return html`<div ref=${box}></div>`;
}

export const AXIS_WIDTH = AXIS;
