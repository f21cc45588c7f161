// What people were told of what they have.
import { html } from '../lib/html.js';
import { clock } from '../lib/clock.js';
import { firstSentence, fmt, inWords, name, t, textOf } from '../lib/i18n.js';
import { titleOf } from './allocated.js';
import { Pages } from './pages.js';
import { Note, Panel } from './panel.js';
import { Shape } from './status.js';

const PAGE = 8;
const DAY_MS = 86_400_000;
const SHAPES = {
  'allocation.active': ['ok', 'ok'], 'allocation.failed': ['failed', 'critical'], 'allocation.completed': ['done', 'out'],
  'allocation.ending': ['warning', 'warning'], 'allocation.degraded': ['critical', 'critical'], 'allocation.repair': ['acting', 'action'],
};

function Line({ n }) {
  const at = Date.parse(n.time);
  const [kind, token] = SHAPES[n.type] ?? ['done', 'out'];
  const why = firstSentence(textOf(n.sentence, inWords(n.data.details, n.data.detail)));
  return html`<li><time class="num dim" dateTime=${n.time} title=${fmt.stamp(at)}>${(clock.now() - at < DAY_MS ? fmt.clock : fmt.day)(at)}</time>
    <span><span class=${`c-${token}`}><${Shape} kind=${kind} token=${token} size=${11} /> ${name('told', n.type)}</span> <b>${titleOf({ purpose: n.data.purpose, id: n.subject })}</b>${n.data.user && html` <span class="dim">${n.data.user}</span>`}${why && html`<br /><span class="text-2">${why}</span>`}</span></li>`;
}

/** Notices, the last first. */
export const Told = () => html`<${Panel} title=${t('alo.told')} id="told" flush>
  <${Pages} path=${`notices?limit=${PAGE}`} height=${80}>${({ items }, first) => (items.length === 0 ? first && html`<${Note} title=${t('alo.told_none')} />` : html`<ul class="audit">${items.map((n) => html`<${Line} key=${n.id} n=${n} />`)}</ul>`)}<//><//>`;
