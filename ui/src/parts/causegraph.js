// How a cause reaches its effects over the topology. Left is the cause; each column is one step further. Equal
// resources are folded into one box. What stayed silent as it should is drawn too: it is evidence.
import { cls, html } from '../lib/html.js';
import { fmt, name, t } from '../lib/i18n.js';

const BOX = { w: 122, h: 46, gap: 14 };
const PITCH = 178;

const NAME = 17; // characters that fit

/** The column of each node: how many steps it is from the cause. What no edge reaches stands beside the cause. */
function depths(graph) {
  const depth = new Map(graph.nodes.filter((n) => n.role === 'cause').map((n) => [n.id, 0]));
  for (let round = 0; round < graph.nodes.length; round++) {
    let moved = false;
    for (const { from, to } of graph.edges) {
      if (depth.has(from) && !depth.has(to)) { depth.set(to, depth.get(from) + 1); moved = true; }
    }
    if (!moved) break;
  }
  for (const { from, to } of graph.edges) if (depth.has(to) && !depth.has(from)) depth.set(from, Math.max(0, depth.get(to) - 1));
  return depth;
}

function place(graph) {
  const layers = [];
  const depth = depths(graph);
  for (const node of graph.nodes) (layers[depth.get(node.id) ?? 0] ??= []).push(node);
  for (let k = 0; k < layers.length; k++) layers[k] ??= [];
  const tall = Math.max(...layers.map((l) => l.length));
  const height = tall * (BOX.h + BOX.gap) + 8;
  const at = new Map();
  layers.forEach((nodes, c) => nodes.forEach((node, r) => {
    const free = height - nodes.length * (BOX.h + BOX.gap) + BOX.gap;
    at.set(node.id, { x: 6 + c * PITCH, y: free / 2 + r * (BOX.h + BOX.gap), node });
  }));
  return { at, width: (layers.length - 1) * PITCH + BOX.w + 18, height };
}

const detail = (node, cause) => (node.role === 'cause' ? fmt.prob(cause.confidence) : node.role === 'silent' ? t('inc.quiet') : node.count > 1 ? t('inc.reports_of', { n: node.reporting, of: node.count }) : t(`role.${node.role}`));
const nameOf = (node) => (node.count > 1 && node.label === `${node.count} ${node.kind}` ? `${node.count} × ${name('part', node.kind)}` : node.label || node.id);
const short = (text) => (text.length > NAME ? `${text.slice(0, NAME - 1)}…` : text);
const lag = (ms) => (ms < 1000 ? `${fmt.fixed(ms / 1000, 1)} ${t('unit.s')}` : fmt.dur(ms / 1000));

export function CauseGraph({ graph, cause }) {
  const { at, width, height } = place(graph);
  return html`<div class="graph">
    <svg viewBox=${`0 0 ${width} ${height}`} style=${{ maxWidth: `${width * 1.06}px` }} role="img" aria-label=${sentence(graph)}>
      ${graph.edges.map((edge) => {
        const [a, b] = [at.get(edge.from), at.get(edge.to)];
        if (!a || !b) return null;
        const quiet = a.node.role === 'silent' || b.node.role === 'silent';
        const [x1, y1, x2, y2] = [a.x + BOX.w, a.y + BOX.h / 2, b.x, b.y + BOX.h / 2];
        const mid = (x1 + x2) / 2;
        return html`<g class=${cls('edge', quiet && 'quiet')}><path d=${`M${x1} ${y1}C${mid} ${y1} ${mid} ${y2} ${x2} ${y2}`} />${!quiet && edge.lag_seconds > 0 && html`<text x=${x2 - 5} y=${y2 - 5} text-anchor="end">${lag(edge.lag_seconds * 1000)}</text>`}</g>`;
      })}
      ${[...at.values()].map(({ x, y, node }) => html`<g class=${`node ${node.role}`} transform=${`translate(${x} ${y})`}>
        ${node.count > 1 && html`<rect x="4" y="-4" width=${BOX.w} height=${BOX.h} rx="6" class="behind" />`}
        <rect width=${BOX.w} height=${BOX.h} rx="6" class="front" />
        <title>${nameOf(node)}</title><text x="10" y="19" class="name">${short(nameOf(node))}</text>
        <text x="10" y="35" class="note">${detail(node, cause)}</text>
      </g>`)}
    </svg>
    <details class="as-text"><summary>${t('inc.as_text')}</summary><ol>${graph.edges.map((edge) => html`<li><span class="mono">${label(graph, edge.from)}</span> → <span class="mono">${label(graph, edge.to)}</span> <span class="dim">${name('link', edge.kind)}${edge.lag_seconds > 0 ? `, ${lag(edge.lag_seconds * 1000)}` : ''}</span></li>`)}</ol></details>
  </div>`;
}

const label = (graph, id) => nameOf(graph.nodes.find((n) => n.id === id) ?? { id });
const sentence = (graph) => graph.nodes.map((n) => `${nameOf(n)}: ${t(`role.${n.role}`)}`).join('; ');
