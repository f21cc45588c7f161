// What is this server doing, what did it do, and what will it do next?
import { cls, html, useEffect, useMemo, useState } from '../lib/html.js';
import { useApi } from '../lib/api.js';
import { clock } from '../lib/clock.js';
import { fmt, name, textOf, t } from '../lib/i18n.js';
import { useKeys } from '../lib/keys.js';
import { go, href, setQuery } from '../lib/router.js';
import { Res, Segments, summaryOf } from '../parts/bits.js';
import { Workflows } from '../parts/bringup.js';
import { Config } from '../parts/config.js';
import { Validations } from '../parts/validation.js';
import { Maintenance } from '../parts/maintenance.js';
import { Await, Note, Panel } from '../parts/panel.js';
import { AXIS_WIDTH, Plot } from '../parts/plot.js';
import { actionText, shapeOf, stateText } from '../parts/ladder.js';
import { STATES, Shape, StateTag, severityKind } from '../parts/status.js';
import { failureOf } from './predictions.js';

const RANGES = { '15m': 900, '1h': 3600, '6h': 21_600, '24h': 86_400 };
const FRESH_MS = 10_000;
const SHORTEST = 180;
const AHEAD = 4; // the future has at most this many times the room of the past

/** The parts of the server as small cells, so that the one that is ill is seen at once. */
const Anatomy = ({ parts, picked }) => html`<div class="anatomy">${parts.map(({ kind, names, states }) => html`<div><span class="dim">${name('part', kind)}</span><span class=${cls('cells', names.length > 10 && 'many')}>${names.map((part, k) => {
  const state = STATES[Number(states[k])];
  const text = `${part}: ${t(`state.${state.key}`)}`;
  return html`<button class=${cls('cell', `f-${state.token}`, picked === part && 'picked')} aria-pressed=${picked === part ? 'true' : 'false'} aria-label=${text} title=${text} onClick=${() => setQuery({ part: picked === part ? null : part })}>${state.letter}</button>`;
})}</span></div>`)}</div>`;

function Forecast({ prediction }) {
  if (!prediction) return html`<${Panel} title=${t('dev.forecast')} id="forecast"><${Note} title=${t('dev.no_forecast')} /><//>`;
  const now = clock.now();
  const part = prediction.resource.split('/').at(-1);
  const limit = prediction.limit.below ?? prediction.limit.above;
  const at = (iso) => (iso ? (Date.parse(iso) - now > 86_400_000 ? fmt.stamp(Date.parse(iso)) : fmt.clock(Date.parse(iso))) : '–');
  const words = prediction.eta_p50 && limit !== undefined
    ? t(prediction.limit.below !== undefined ? 'dev.will_fall' : 'dev.will_rise', { part, limit, unit: prediction.unit, age: fmt.dur((Date.parse(prediction.eta_p50) - now) / 1000) })
    : textOf(prediction.sentence, prediction.explanation) || failureOf(prediction);
  return html`<${Panel} title=${t('dev.forecast')} id="forecast" class="forecast">
    <p class="lead"><${Shape} kind="predicted" size=${15} />${words}</p>
    ${prediction.limit.source === 'default' && html`<p class="dim">${t('dev.default_hint')}</p>`}
    <dl class="pairs"><dt>p10 – p90</dt><dd class="num">${at(prediction.eta_p10)} – ${prediction.eta_p90 ? at(prediction.eta_p90) : '∞'}</dd><dt>${t('dev.probability', { age: fmt.dur(prediction.horizon_seconds) })}</dt><dd class="num">${fmt.prob(prediction.probability)}</dd><dt>${t('pre.now')}</dt><dd class="num">${fmt.num(prediction.value)} ${prediction.unit}</dd></dl>
    ${prediction.evidence.length > 0 && html`<h3>${t('dev.signals')}</h3>
    <ul class="signals">${prediction.evidence.map((e) => html`<li><span class="mono">${e.metric}</span><span class="bar"><i style=${{ width: `${e.share * 100}%` }}></i></span><b class="num">${fmt.pct(e.share)}</b></li>`)}</ul>`}
    <p class="dim">${t('dev.model', prediction.model)}</p>
  <//>`;
}

/** Events on the same time axis as the plots below. */
function EventLane({ events, range, picked, onPick }) {
  const at = (iso) => ((Date.parse(iso) / 1000 - range[0]) / (range[1] - range[0])) * 100;
  return html`<div class="event-lane" style=${{ '--axis': `${AXIS_WIDTH}px` }}><span class="dim">${t('dev.event_lane')}</span><div>${events.map((e, k) => at(e.time) >= 0 && at(e.time) <= 100 && html`<button class=${cls('event', picked === k && 'on')} style=${{ left: `${at(e.time)}%` }} aria-label=${`${e.type} ${e.code ?? ''}: ${e.message ?? ''}`} title=${e.message ?? e.type} onMouseEnter=${() => onPick(k)} onMouseLeave=${() => onPick(null)} onFocus=${() => onPick(k)} onBlur=${() => onPick(null)}><${Shape} kind=${severityKind(e.severity)} token=${e.severity === 'info' ? 'out' : undefined} size=${11} /></button>`)}</div></div>`;
}

/** What is open here: incidents and actions, each a line. */
const Open = ({ server }) => html`<${Panel} title=${t('dev.open')} id="open" flush>
  ${server.incidents.map((i) => html`<a class="repair-row" href=${href(`incidents/${i.id}`)}><${Shape} kind=${severityKind(i.severity)} label=${name('severity', i.severity)} /><span>${summaryOf(i)}</span></a>`)}
  ${server.actions.slice(0, 6).map((a) => { const [kind, token] = shapeOf(a); return html`<a class="repair-row" href=${href(a.incident ? `incidents/${a.incident}` : 'actions')}><${Shape} kind=${kind} token=${token} /><span>${actionText(a)} <span class="dim">${stateText(a)}</span></span></a>`; })}
<//>`;

/** The shortest range beside which the middle of the nearest forecast has room. */
function fitting(predictions) {
  const middles = (predictions ?? []).filter((p) => p.eta_p50).map((p) => (Date.parse(p.eta_p50) - clock.now()) / 1000);
  if (middles.length === 0) return '15m';
  return Object.keys(RANGES).find((name) => Math.min(...middles) <= AHEAD * RANGES[name]) ?? '24h';
}

function Plots({ id, part, rangeName, events, picked, onPick }) {
  const answer = useApi(`servers/${encodeURIComponent(id)}/plots?range=${rangeName}${part ? `&part=${encodeURIComponent(part)}` : ''}`, { every: FRESH_MS });
  const now = useMemo(() => clock.now(), [answer.data]);
  const past = RANGES[rangeName];
  const forecast = answer.data?.items.find((p) => p.forecast)?.forecast;
  const ahead = useMemo(() => {
    if (!forecast?.eta_p50) return past * 0.02;
    const seconds = (iso) => (iso ? (Date.parse(iso) - now) / 1000 : 0);
    return Math.max(past * 0.1, Math.min(seconds(forecast.eta_p90) || Infinity, AHEAD * past) * 1.12);
  }, [forecast, past, now]);
  const since = useMemo(() => { // a young system has no hours to show
    const firsts = (answer.data?.items ?? []).map((p) => p.times[p.avg.findIndex((v) => v !== null)]).filter(Boolean);
    const first = firsts.length ? Math.min(...firsts) : 0;
    return Math.max(now / 1000 - past, Math.min(first, now / 1000 - SHORTEST));
  }, [answer.data, past, now]);
  const range = [since, now / 1000 + Math.min(ahead, forecast ? Infinity : (now / 1000 - since) * 0.04)];
  return html`<${Await} of=${answer} height=${420}>${({ items }) => (items.length === 0 ? html`<${Panel}><${Note} title=${t('dev.no_plots')} hint=${t('dev.no_plots_hint')} /><//>` : html`<${Panel} flush class="plots">
    <${EventLane} events=${events} range=${range} picked=${picked} onPick=${onPick} />
    ${items.map((p, k) => html`<${Plot} key=${p.metric + p.subject} plot=${p} now=${now} range=${range} height=${p.forecast ? 210 : k === 0 ? 110 : 84} last=${k === items.length - 1} sync="device" />`)}
  <//>`)}<//>`;
}

/** Who looks after an alert, or has resolved it. */
const Handled = ({ alert }) => {
  const by = alert.resolved_by || alert.acknowledged_by;
  return by ? html` <span class="dim">· ${t(alert.resolved_by ? 'dev.resolved_by' : 'dev.acknowledged_by', { by })}</span>` : null;
};

export function DevicePage({ id, query }) {
  const answer = useApi(`servers/${encodeURIComponent(id)}`, { every: 3 * FRESH_MS });
  const canonical = answer.data?.name;
  useEffect(() => { // a serial number or an id in the address: the name is what other views link to
    if (canonical && canonical !== id) go(`servers/${encodeURIComponent(canonical)}${location.search}`, { replace: true });
  }, [canonical, id]);
  const [picked, setPicked] = useState(null);
  const [filter, setFilter] = useState('');
  const names = Object.keys(RANGES);
  const rangeName = RANGES[query.get('range')] ? query.get('range') : fitting(answer.data?.predictions);
  useKeys({ r: () => setQuery({ range: names[(names.indexOf(rangeName) + 1) % names.length] }) });
  return html`<${Await} of=${answer} height=${500}>${(server) => {
    const part = server.parts.some((p) => p.names.includes(query.get('part'))) ? query.get('part') : null;
    const prediction = server.predictions.find((p) => p.resource === `${server.name}/${part}`) ?? server.predictions[0];
    const marked = part ?? prediction?.resource.split('/').at(-1);
    const log = server.events.map((e, k) => ({ ...e, k })).filter((e) => !filter || `${e.type} ${e.code} ${e.source} ${e.resource} ${e.message}`.toLowerCase().includes(filter.toLowerCase()));
    return html`
    <header class="device-head">
      <div><p class="crumbs"><a href=${href('fleet')}>${server.site || t('nav.fleet')}</a> / ${server.rack.split('-').at(-1)} / </p><h1 class="mono">${server.name}</h1></div>
      <${StateTag} state=${server.state} />
      <dl class="facts-line">${server.kind === 'server' && html`<div><dt>${t('map.job')}</dt><dd>${server.job ? t('dev.allocated', { job: server.job.id, tenant: server.job.tenant || server.job.name || '–' }) : t('map.free')}</dd></div>`}${server.contact.length > 0 && html`<div><dt>${t('dev.contact')}</dt><dd class="num">${server.contact.map((c) => `${c.collector} ${fmt.num(Math.round(c.seconds))} ${t('unit.s')}`).join(' · ')}</dd></div>`}</dl>
      <span class="grow"></span><${Segments} label=${t('dev.range')} value=${rangeName} options=${names.map((r) => [r, r])} onChange=${(r) => setQuery({ range: r })} />
    </header>
    <div class="device-grid">
      <div class="column">
        <${Plots} id=${server.name} part=${part} rangeName=${rangeName} events=${server.events} picked=${picked} onPick=${setPicked} />
        <${Panel} title=${t('dev.log')} id="log" flush aside=${html`<input class="field small" type="search" value=${filter} placeholder=${t('dev.filter')} aria-label=${t('dev.filter')} onInput=${(e) => setFilter(e.target.value)} />`}>
          ${log.length === 0 ? html`<${Note} title=${t('dev.no_log')} />` : html`<div class="scroll"><table class="table tight"><tbody>${log.map((e) => html`<tr class=${cls('row', picked === e.k && 'selected')} onMouseEnter=${() => setPicked(e.k)} onMouseLeave=${() => setPicked(null)}><td class="num dim">${fmt.clock(Date.parse(e.time))}</td><td><${Shape} kind=${severityKind(e.severity)} token=${e.severity === 'info' ? 'out' : undefined} label=${name('severity', e.severity)} /></td><td>${e.source}</td><td class="mono">${e.type}${e.code ? ` ${e.code}` : ''}</td><td class="mono dim">${e.resource.split('/')[1] ?? ''}</td><td class="wrap">${e.message ?? ''}<${Handled} alert=${e} /></td></tr>`)}</tbody></table></div>`}
        <//>
      </div>
      <div class="column side">
        ${server.incidents.length + server.actions.length > 0 && html`<${Open} server=${server} />`}
        ${server.created_at && server.status !== 'ready' && html`<${Workflows} server=${server} />`}
        ${server.parts.length > 0 && html`<${Panel} title=${t('dev.parts')} id="parts"><${Anatomy} parts=${server.parts} picked=${marked} /><//>`}
        <${Forecast} prediction=${prediction} />
        ${server.consoles && html`<${Panel} title=${t('dev.consoles')} id="consoles" flush><table class="table tight"><tbody>${server.consoles.map((c) => html`<tr><td class="dim">${t(`dev.${c.kind}`)}</td><td class="mono">${c.protocol}</td><td class="mono wrap">${c.url ? html`<a href=${c.url} target="_blank" rel="noopener">${c.url}</a>` : c.command ?? (c.enabled ? '–' : t('dev.console_off'))}</td></tr>`)}</tbody></table><//>`}
        ${server.created_at && server.status === 'ready' && html`<${Workflows} server=${server} />`}
        ${server.created_at && html`<${Config} server=${server.name} part=${part} />`}
        ${server.created_at && html`<${Validations} server=${server.name} />`}
        <${Maintenance} resource=${server.name} />
        <${Panel} title=${t('dev.inventory')} id="inventory" flush aside=${html`<span class="dim mono">${[server.model, server.serial].filter(Boolean).join(' · ')}</span>`}><table class="table tight"><tbody>${server.inventory.map((f) => html`<tr><td class="dim">${name('part', f.name)}</td><td colspan="2" class="wrap">${f.value}</td></tr>`)}${server.links.slice(0, 24).map((l) => html`<tr><td class="dim mono">${l.part}</td><td><${Res} id=${l.peer} /></td><td class="dim">${name('link', l.kind)}</td></tr>`)}</tbody></table><//>
      </div>
    </div>`;
  }}<//>`;
}
