// The heat map as a component: a canvas, its pointer and its keys, a legend, a table for those who read better.
import { cls, html, useCallback, useEffect, useLayoutEffect, useMemo, useRef, useState } from '../../lib/html.js';
import { useStream } from '../../lib/api.js';
import { fmt, t } from '../../lib/i18n.js';
import { useKeys } from '../../lib/keys.js';
import { go, href } from '../../lib/router.js';
import { useTheme } from '../../lib/theme.js';
import { STATES, Shape, StateTag } from '../status.js';
import { CARDS_UP_TO } from './layout.js';
import { Scene } from './scene.js';

const TRACE = localStorage.getItem('trace') === 'on'; // frame times as User Timing entries, for the browser test
const TABLE_ROWS = 200;
const still = matchMedia('(prefers-reduced-motion: reduce)');

/** `about`, of a server's place in the columns: what to say of it beside its state, as [label, text]. */
export function HeatMap({ picture, by, only, height, onStates, label = 'fleet.map_label', about }) {
  const canvas = useRef();
  const box = useRef();
  const scene = useRef(null);
  const frame = useRef(0);
  const [width, setWidth] = useState(0);
  const [hover, setHover] = useState(-1);
  const [mark, setMark] = useState(-1);
  const theme = useTheme();
  const marks = useRef({});
  marks.current = { hover, mark };

  const paint = useCallback(() => {
    cancelAnimationFrame(frame.current);
    frame.current = requestAnimationFrame(() => {
      if (!scene.current || !canvas.current) return;
      const start = performance.now();
      scene.current.draw(canvas.current.getContext('2d', { alpha: false }), devicePixelRatio, marks.current);
      if (TRACE) performance.measure('heatmap.draw', { start, end: performance.now() });
    });
  }, []);

  useLayoutEffect(() => { // with the drawing: what is seen answers to its keys
    setWidth(Math.floor(box.current.clientWidth));
    const watch = new ResizeObserver(([entry]) => setWidth(Math.floor(entry.contentRect.width)));
    watch.observe(box.current);
    return () => watch.disconnect();
  }, []);

  useLayoutEffect(() => {
    if (!width) return;
    scene.current = new Scene(picture, width, height);
    const { place } = scene.current;
    canvas.current.width = width * devicePixelRatio;
    canvas.current.height = place.height * devicePixelRatio;
    canvas.current.style.width = `${width}px`;
    canvas.current.style.height = `${place.height}px`;
  }, [picture, width, height]);

  useEffect(() => {
    if (!scene.current) return;
    scene.current.only = only;
    if (scene.current.by !== by) scene.current.colour(by);
    paint();
  }, [picture, width, height, by, only, hover, mark, theme]);

  useStream('servers', useCallback((changes) => { if (scene.current?.change(changes)) onStates?.(); paint(); }, []));

  /** Moves the view to a target, in 180 ms unless motion is unwanted. */
  const fly = (target) => {
    const from = scene.current.view;
    const began = performance.now();
    const tick = (now) => {
      const f = still.matches ? 1 : Math.min(1, (now - began) / 180);
      const e = 1 - (1 - f) ** 3;
      scene.current.view = { k: from.k + (target.k - from.k) * e, x: from.x + (target.x - from.x) * e, y: from.y + (target.y - from.y) * e };
      paint();
      if (f < 1) requestAnimationFrame(tick);
    };
    requestAnimationFrame(tick);
  };
  const zoomable = () => scene.current?.place.kind === 'field';
  const zoomBy = (factor) => {
    if (!zoomable()) return;
    const old = scene.current.view;
    scene.current.zoom(factor, width / 2, scene.current.place.height / 2);
    const target = scene.current.view;
    scene.current.view = old;
    fly(target);
  };
  const fit = () => zoomable() && fly({ k: 1, x: 0, y: 0 });
  const select = (i) => {
    setMark(i);
    if (!zoomable() || scene.current.view.k === 1) return;
    fly(scene.current.close(i));
  };
  const problem = (by1) => { if (!scene.current?.count) return; const i = scene.current.problem(Math.max(0, mark), by1); setMark(i); if (zoomable()) fly(scene.current.close(i)); canvas.current.focus({ preventScroll: true }); };
  const arrow = (dx, dy) => (mark < 0 ? select(0) : select(scene.current.step(mark, dx, dy)));
  const open = (i) => go(`servers/${picture.servers.name[i]}`);

  useKeys({ n: () => problem(1), p: () => problem(-1), '+': () => zoomBy(1.8), '=': () => zoomBy(1.8), '-': () => zoomBy(1 / 1.8), 0: fit });
  const onKeyDown = (event) => {
    const keys = { ArrowLeft: () => arrow(-1, 0), ArrowRight: () => arrow(1, 0), ArrowUp: () => arrow(0, -1), ArrowDown: () => arrow(0, 1), Enter: () => mark >= 0 && open(mark), Escape: () => { setMark(-1); fit(); } };
    if (keys[event.key]) { event.preventDefault(); event.stopPropagation(); keys[event.key](); }
  };

  const drag = useRef(null);
  const pointer = {
    onPointerDown: (e) => { drag.current = { x: e.clientX, y: e.clientY, moved: false }; },
    onPointerMove: (e) => {
      const { left, top } = canvas.current.getBoundingClientRect();
      if (drag.current && e.buttons && zoomable()) {
        const [dx, dy] = [e.clientX - drag.current.x, e.clientY - drag.current.y];
        if (Math.abs(dx) + Math.abs(dy) > 3 || drag.current.moved) { scene.current.pan(dx, dy); drag.current = { x: e.clientX, y: e.clientY, moved: true }; paint(); }
        return;
      }
      setHover(scene.current.hit(e.clientX - left, e.clientY - top));
    },
    onPointerLeave: () => setHover(-1),
    onClick: (e) => {
      const { left, top } = canvas.current.getBoundingClientRect();
      const i = scene.current.hit(e.clientX - left, e.clientY - top);
      if (drag.current?.moved || i < 0) return;
      if (zoomable() && scene.current.view.k < 4) { setMark(i); fly(scene.current.close(i)); } else open(i);
    },
  };
  useEffect(() => { // a wheel with ctrl (or a pinch) zooms; a plain wheel belongs to the page
    const onWheel = (e) => {
      if (!e.ctrlKey || !zoomable()) return;
      e.preventDefault();
      const { left, top } = canvas.current.getBoundingClientRect();
      scene.current.zoom(Math.exp(-e.deltaY / 120), e.clientX - left, e.clientY - top);
      paint();
    };
    canvas.current.addEventListener('wheel', onWheel, { passive: false });
    return () => canvas.current?.removeEventListener('wheel', onWheel);
  }, []);

  const shown = hover >= 0 ? hover : mark;
  return html`<div class="heatmap" ref=${box}>
    <canvas ref=${canvas} tabindex="0" role="application" aria-label=${t(label)} aria-describedby="map-now" onKeyDown=${onKeyDown} ...${pointer}></canvas>
    ${picture.servers.name.length > CARDS_UP_TO && html`<div class="zoom"><button class="btn small" onClick=${() => zoomBy(1.8)} aria-label=${t('map.in')}>+</button><button class="btn small" onClick=${() => zoomBy(1 / 1.8)} aria-label=${t('map.out')}>−</button><button class="btn small" onClick=${fit}>${t('map.fit')}</button></div>`}
    <p id="map-now" class="sr" aria-live="polite">${mark >= 0 ? `${picture.servers.name[mark]}, ${t(`state.${STATES[picture.servers.state[mark]].key}`)}${about ? about(mark).map(([, text]) => `, ${text}`).join('') : ''}` : ''}</p>
    ${shown >= 0 && scene.current && html`<${Tip} about=${about} picture=${picture} i=${shown} scene=${scene.current} width=${width} />`}
  </div>`;
}

/** What the map says of one server. It keeps to the side that is free. */
function Tip({ picture, about, i, scene, width }) {
  const { servers, jobs } = picture;
  const { k, x, y } = scene.view;
  const [bx, by, bw, bh] = scene.place.boxes.subarray(i * 4, i * 4 + 4);
  const left = bx * k + x;
  const style = { top: `${Math.max(0, Math.min(scene.place.height - 168, by * k + y + bh * k + 6))}px`, left: `${Math.max(0, Math.min(width - 216, left + (bw * k) / 2 - 108))}px` };
  const job = jobs[servers.job[i]];
  const counts = [...servers.gpus[i]].filter((d) => d !== '0').length;
  return html`<div class="tip" style=${style} aria-hidden="true">
    <header><b class="mono">${servers.name[i]}</b><${StateTag} state=${servers.state[i]} /></header>
    ${about ? html`<dl>${about(i).map(([term, text]) => html`<dt>${term}</dt><dd>${text}</dd>`)}</dl>` : html`<dl>
      <dt>GPU</dt><dd>${servers.gpus[i].length - counts} / ${servers.gpus[i].length}</dd><dt>${t('by.job')}</dt><dd>${job ? `${job.id}, ${job.tenant}` : t('map.free')}</dd>
      <dt>${t('by.temp')}</dt><dd>${fmt.num(servers.temp[i])} °C</dd><dt>${t('by.power')}</dt><dd>${kilowatts(servers.power[i])} kW</dd>
      <dt>${t('by.load')}</dt><dd>${fmt.num(servers.load[i])} %</dd><dt>${t('by.risk')}</dt><dd>${fmt.fixed(servers.risk[i], 1)} %</dd>
    </dl>`}
  </div>`;
}

const kilowatts = (watts) => fmt.fixed(watts === null ? null : watts / 1000, 1);

/** The meaning of the colours, with how many servers have each. */
export function Legend({ picture, by, version }) {
  const counts = useMemo(() => picture.servers.state.reduce((sum, s) => { sum[s]++; return sum; }, STATES.map(() => 0)), [picture, version]);
  if (by === 'health') return html`<ul class="legend">${STATES.map((s, k) => counts[k] > 0 && html`<li class=${`c-${s.token}`}><${Shape} kind=${s.key} token=${s.token} size=${11} /><span>${t(`state.${s.key}`)}</span><b class="num">${fmt.num(counts[k])}</b></li>`)}</ul>`;
  if (by === 'job') return html`<ul class="legend">${[...new Set(picture.jobs.map((j) => j.tenant))].slice(0, 6).map((name, k) => html`<li><i class=${`swatch cat-${k}`}></i>${name}</li>`)}<li><i class="swatch free"></i>${t('map.free')}</li></ul>`;
  const ends = { temp: ['30 °C', '85 °C'], power: ['1.5 kW', '10.5 kW'], load: ['0 %', '100 %'], risk: ['0 %', '100 %'] }[by];
  return html`<ul class="legend scale"><li>${ends[0]}</li><li class="ramp" aria-hidden="true"><i></i><i></i><i></i><i></i><i></i></li><li>${ends[1]}</li></ul>`;
}

/** The same fleet as a table, worst first. */
export function FleetTable({ picture, only }) {
  const { servers, jobs } = picture;
  const rows = useMemo(() => servers.name.map((_, i) => i).filter((i) => !only || servers.state[i] !== 0).sort((a, b) => STATES[servers.state[b]].rank - STATES[servers.state[a]].rank || a - b).slice(0, TABLE_ROWS), [picture, only]);
  return html`<div class="scroll"><table class="table"><thead><tr><th>${t('map.server')}</th><th>${t('map.state')}</th><th class="r">GPU</th><th>${t('map.job')}</th><th class="r">°C</th><th class="r">kW</th><th class="r">${t('by.risk')}</th></tr></thead>
    <tbody>${rows.map((i) => html`<tr class=${cls('row')}><td><a class="mono" href=${href(`servers/${servers.name[i]}`)}>${servers.name[i]}</a></td><td><${StateTag} state=${servers.state[i]} /></td><td class="r num">${[...servers.gpus[i]].filter((d) => d === '0').length}/${servers.gpus[i].length}</td><td class="mono">${jobs[servers.job[i]]?.id ?? '–'}</td><td class="r num">${fmt.num(servers.temp[i])}</td><td class="r num">${kilowatts(servers.power[i])}</td><td class="r num">${fmt.fixed(servers.risk[i], 1)} %</td></tr>`)}</tbody></table></div>`;
}
