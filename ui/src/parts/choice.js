// What a wish would get: the servers and why, the next best, and why all others were not chosen.
import { html } from '../lib/html.js';
import { fmt, textOf, t } from '../lib/i18n.js';
import { href } from '../lib/router.js';
import { Shape } from './status.js';

const SHOWN = 8;
const EXAMPLES = 3;

const Server = ({ id }) => html`<a class="mono" href=${href(`servers/${encodeURIComponent(id)}`)}>${id}</a>`;
const say = (sentences) => sentences.map((s) => textOf(s)).filter(Boolean).join(t('alo.and'));

const Pick = ({ pick: p, whole }) => html`<li><span><${Server} id=${p.server} />${!whole && html` <span class="num">${t('alo.gpus', { n: p.gpus.length })}</span>`}<br /><span class="text-2">${say(p.reasons)}</span></span></li>`;

/** A server that was nearly chosen: what decided against it stands first. */
const Runner = ({ pick: p }) => html`<li><span><${Server} id=${p.server} /> ${textOf(p.reasons.at(-1))}<br /><span class="dim">${say(p.reasons.slice(0, -1))}</span></span></li>`;

/** One reason speaks of its first server; the others of it are counted. */
function Lost({ lost: l }) {
  const others = l.examples.slice(1, EXAMPLES);
  return html`<li><b class="num">${fmt.num(l.count)}</b><span>${t('alo.lost_one', { server: l.examples[0] ?? '', why: textOf(l.reason) })}${l.count > 1 && html` <span class="dim">${t('alo.lost_more', { n: l.count - 1, names: others.join(', '), rest: l.count - 1 - others.length })}</span>`}</span></li>`;
}

const Losses = ({ lost }) => lost.length > 0 && html`<details open><summary>${t('alo.lost', { n: lost.reduce((sum, l) => sum + l.count, 0) })}</summary><ul class="losses">${lost.map((l) => html`<${Lost} lost=${l} />`)}</ul></details>`;

/** `whole` servers or GPUs; `none` where nothing fits. */
export function Choice({ choice: c, whole, none }) {
  if (none) {
    return html`<p class="verdict-line c-warning"><${Shape} kind="warning" size=${13} /> ${t('alo.no_fit')}</p>
      ${c.nearest?.length > 0 && html`<ul class="nearest">${c.nearest.map((s) => html`<li>${textOf(s)}</li>`)}</ul>`}<${Losses} lost=${c.lost} />`;
  }
  const gpus = c.servers.reduce((sum, p) => sum + p.gpus.length, 0);
  return html`<p class="verdict-line c-ok"><${Shape} kind="done" token="ok" size=${13} /> ${t(whole ? 'alo.fits_whole' : 'alo.fits', { n: c.servers.length, gpus })}</p>
    <ul class="picks">${c.servers.slice(0, SHOWN).map((p) => html`<${Pick} pick=${p} whole=${whole} />`)}</ul>
    ${c.servers.length > SHOWN && html`<p class="dim">${t('more', { n: c.servers.length - SHOWN })}</p>`}
    ${c.runners_up.length > 0 && html`<h3>${t('alo.runners')}</h3><ul class="picks">${c.runners_up.map((p) => html`<${Runner} pick=${p} />`)}</ul>`}
    <${Losses} lost=${c.lost} />`;
}
