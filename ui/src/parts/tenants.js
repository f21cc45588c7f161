// Where each team and user has something: the map by tenant, and the same as a table.
import { cls, html, useMemo, useState } from '../lib/html.js';
import { FLEET, useApi } from '../lib/api.js';
import { fmt, t } from '../lib/i18n.js';
import { href } from '../lib/router.js';
import { untilText } from './allocated.js';
import { HeatMap } from './heatmap/heatmap.js';
import { Await, Note, Panel } from './panel.js';

const OWN = 5; // tenants with a colour of their own; the last colour is all others'
const ROWS = 200;
const LETTERS = 14;

/** Whom an allocation is for: the team, or the user where it is for no team. */
export const tenantOf = (a) => a.team || a.user;

const short = (text) => (text.length > LETTERS ? `${text.slice(0, LETTERS - 1)}…` : text);

/** Allocations by the name of a server, and their tenants, the largest first. */
function held(items) {
  const by = new Map();
  const sizes = new Map();
  for (const a of items) {
    if (a.booked) continue;
    sizes.set(tenantOf(a), (sizes.get(tenantOf(a)) ?? 0) + a.gpu_ids.length);
    for (const server of a.servers) by.set(server, [...(by.get(server) ?? []), a]);
  }
  return { by, tenants: [...sizes].sort((a, b) => b[1] - a[1] || a[0].localeCompare(b[0])) };
}

/** The picture of the fleet with allocations in place of jobs. */
function paint(picture, { by, tenants }) {
  const place = new Map(tenants.map(([who], k) => [who, Math.min(k, OWN)]));
  const jobs = Array.from({ length: Math.min(tenants.length, OWN + 1) }, (_, k) => ({ id: '', tenant: String(k) }));
  const seen = new Map();
  const job = picture.servers.name.map((server) => {
    const all = by.get(server);
    if (!all) return -1;
    const who = [...new Set(all.map(tenantOf))];
    const key = who.join(' + ');
    if (!seen.has(key)) seen.set(key, jobs.push({ id: short(key), tenant: String(place.get(who[0])) }) - 1);
    return seen.get(key);
  });
  return { ...picture, jobs, servers: { ...picture.servers, job } };
}

const Key = ({ tenants }) => html`<ul class="legend">${tenants.slice(0, OWN).map(([who, gpus], k) => html`<li><i class=${`swatch cat-${k}`}></i><span>${who}</span><b class="num">${t('alo.gpus', { n: gpus })}</b></li>`)}
  ${tenants.length > OWN && html`<li><i class=${`swatch cat-${OWN}`}></i><span>${t('alo.others', { n: tenants.length - OWN })}</span><b class="num">${t('alo.gpus', { n: tenants.slice(OWN).reduce((sum, [, gpus]) => sum + gpus, 0) })}</b></li>`}
  <li><i class="swatch free"></i><span>${t('alo.nobody')}</span></li></ul>`;

function Rows({ picture, by }) {
  const { name, rack } = picture.servers;
  const all = name.map((server, i) => [server, picture.racks[rack[i]]?.name, by.get(server)]).filter(([, , a]) => a);
  return html`<div class="scroll"><table class="table tight"><thead><tr><th>${t('agt.rack')}</th><th>${t('map.server')}</th><th>${t('alo.who')}</th><th>${t('alo.purpose')}</th><th>${t('alo.until')}</th></tr></thead>
    <tbody>${all.slice(0, ROWS).flatMap(([server, place, list]) => list.map((a) => html`<tr key=${server + a.id}><td class="mono dim">${place}</td><td><a class="mono" href=${href(`servers/${encodeURIComponent(server)}`)}>${server}</a></td><td>${tenantOf(a)}</td><td>${a.purpose || '–'}</td><td class="num">${untilText(a)}</td></tr>`))}</tbody></table></div>
    ${all.length > ROWS && html`<${Note} title=${t('more', { n: all.length - ROWS })} />`}`;
}

export function TenantMap({ items }) {
  const fleet = useApi(FLEET);
  const [table, setTable] = useState(false);
  const given = useMemo(() => held(items), [items]);
  const picture = useMemo(() => fleet.data && paint(fleet.data, given), [fleet.data, given]);
  const about = (i) => {
    const server = picture.servers.name[i];
    const list = given.by.get(server) ?? [];
    return list.length === 0 ? [[t('alo.who'), t('alo.nobody')]] : list.flatMap((a) => [[t('alo.who'), tenantOf(a)], [t('alo.until'), untilText(a)]]);
  };
  return html`<${Panel} title=${t('alo.map')} id="tenants" class="map-panel" flush=${table} aside=${html`<button class=${cls('btn small', table && 'on')} aria-pressed=${table ? 'true' : 'false'} onClick=${() => setTable(!table)}>${t('map.table')}</button>`}>
    <${Await} of=${fleet} height=${300}>${() => (table ? html`<${Rows} picture=${picture} by=${given.by} />` : html`<div class="map-tools"><${Key} tenants=${given.tenants} /></div><${HeatMap} picture=${picture} by="job" height=${420} label="alo.map_label" about=${about} />`)}<//><//>`;
}
