// What was found of a server when it was validated, the last time first.
import { html, useState } from '../lib/html.js';
import { useApi } from '../lib/api.js';
import { fmt, name, t } from '../lib/i18n.js';
import { Panel } from './panel.js';
import { Shape } from './status.js';

const EVERY_MS = 30_000;
const SHOWN = 5;
const SHAPES = { passed: ['done', 'ok'], warned: ['warning', 'warning'], failed: ['failed', 'critical'], not_seen: ['skipped', 'out'] };
const ORDER = ['failed', 'warned', 'not_seen', 'passed'];

function Check({ c, server }) {
  const [kind, token] = SHAPES[c.verdict];
  const seen = c.seen ? (c.expected && c.expected !== c.seen ? t('val.not_as', { seen: c.seen, expected: c.expected }) : c.seen) : t('val.unseen');
  return html`<tr><td><${Shape} kind=${kind} token=${token} size=${11} label=${t(`val.is.${c.verdict}`)} /></td><td class="mono">${c.part?.startsWith(`${server}/`) ? c.part.slice(server.length + 1) : ''}</td><td>${name('tested', c.name)}</td><td class="wrap">${seen}${c.detail && html`<br /><span class="dim">${c.detail}</span>`}</td><td class="dim">${t(`val.by.${c.source}`)}</td></tr>`;
}

function Row({ v }) {
  const [shown, setShown] = useState(false);
  const [kind, token] = SHAPES[v.verdict];
  const of = (verdict) => v.checks.filter((c) => c.verdict === verdict).length;
  const checks = [...v.checks].sort((a, b) => ORDER.indexOf(a.verdict) - ORDER.indexOf(b.verdict));
  return html`<li class="repair-row"><${Shape} kind=${kind} token=${token} label=${t(`val.is.${v.verdict}`)} />
    <span><button class="fold" aria-expanded=${shown ? 'true' : 'false'} onClick=${() => setShown(!shown)}>${t('val.at', { number: v.number, at: fmt.stamp(Date.parse(v.ended_at)) })}</button><br />
    <span class="dim num">${t('val.counts', { passed: of('passed'), warned: of('warned'), failed: of('failed'), unseen: of('not_seen') })}</span>
    ${shown && html`<div class="scroll"><table class="table tight"><tbody>${checks.map((c) => html`<${Check} c=${c} server=${v.server} />`)}</tbody></table></div>`}</span></li>`;
}

/** The validations of a server; nothing where there are none. */
export function Validations({ server }) {
  const { data } = useApi(`servers/${encodeURIComponent(server)}/validations?limit=${SHOWN}`, { every: EVERY_MS });
  if (!data?.items.length) return null;
  return html`<${Panel} title=${t('val.title')} id="validations" flush><ul class="windows">${data.items.map((v) => html`<${Row} key=${v.id} v=${v} />`)}</ul><//>`;
}
