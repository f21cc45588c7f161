// How much of each pool is given, cleaned, free and stranded, and what is stranded and why.
import { html } from '../lib/html.js';
import { clock } from '../lib/clock.js';
import { fmt, name, t, textOf } from '../lib/i18n.js';
import { href } from '../lib/router.js';
import { Note, Panel } from './panel.js';
import { Shape } from './status.js';

const SHARES = [['given', 'given_gpus'], ['cleaning', 'cleaning_gpus'], ['free', 'free_gpus'], ['stranded', 'stranded_gpus']];
const SHOWN = 50;

/** The sums of all pools. */
export const total = (pools) => pools.reduce((sum, p) => ({ gpus: sum.gpus + p.gpus, given: sum.given + p.given_gpus, stranded: sum.stranded + p.stranded_gpus }), { gpus: 0, given: 0, stranded: 0 });

const Pool = ({ pool }) => html`<li><h3><span class="mono">${pool.pool}</span> <span class="dim num">${t('alo.pool_of', { servers: pool.servers, gpus: pool.gpus })}</span></h3>
  <div class="shares" aria-hidden="true">${SHARES.map(([key, field]) => pool[field] > 0 && html`<i class=${`is-${key}`} style=${{ flexGrow: pool[field] }}></i>`)}</div>
  <dl class="shares-key">${SHARES.map(([key, field]) => html`<div><dt><i class=${`swatch is-${key}`}></i>${t(`alo.${key}`)}</dt><dd class="num">${fmt.num(pool[field])}</dd></div>`)}</dl>
  ${pool.reserved_gpus > 0 && html`<p class="dim">${t('alo.reserved', { n: pool.reserved_gpus })}</p>`}</li>`;

const Lost = ({ item: s }) => html`<li class="stranded"><${Shape} kind="out" token="warning" size=${11} />
  <span><a class="mono" href=${href(`servers/${encodeURIComponent(s.server)}`)}>${s.server}</a> <span class="num">${t('alo.gpus', { n: s.gpus })}</span> <b>${name('alo.why', s.why)}</b>${s.detail && html` <span class="text-2">${textOf(s.detail_sentence, s.detail)}</span>`}<br /><span class="dim num" title=${`${fmt.stamp(Date.parse(s.since))} UTC`}>${t('alo.for', { age: fmt.dur((clock.now() - Date.parse(s.since)) / 1000) })}</span></span></li>`;

export function Capacity({ capacity: { pools, stranded } }) {
  return html`<${Panel} title=${t('alo.capacity')} id="capacity">
      ${pools.length === 0 ? html`<p class="dim">${t('alo.no_pool')}</p>` : html`<ul class="pools">${pools.map((p) => html`<${Pool} key=${p.pool} pool=${p} />`)}</ul>`}<//>
    ${stranded.length > 0 && html`<${Panel} title=${t('alo.stranded_list')} id="stranded" flush aside=${html`<span class="dim num">${fmt.num(stranded.length)}</span>`}>
      <ul>${stranded.slice(0, SHOWN).map((s) => html`<${Lost} key=${s.server} item=${s} />`)}</ul>
      ${stranded.length > SHOWN && html`<${Note} title=${t('more', { n: stranded.length - SHOWN })} />`}<//>`}`;
}
