// Is something wrong, and does anything wait for me?
import { cls, html, useCallback, useEffect, useMemo, useRef, useState } from '../lib/html.js';
import { FLEET, useApi } from '../lib/api.js';
import { clock, useNow } from '../lib/clock.js';
import { fmt, name, t } from '../lib/i18n.js';
import { useKeys } from '../lib/keys.js';
import { go, href, setQuery } from '../lib/router.js';
import { Confidence, Interval, IntervalScale, Segments, horizonOf, summaryOf } from '../parts/bits.js';
import { FleetTable, HeatMap, Legend } from '../parts/heatmap/heatmap.js';
import { actionText } from '../parts/ladder.js';
import { Await, Note, Panel } from '../parts/panel.js';
import { failureOf, soonest } from './predictions.js';
import { Shape, severityKind } from '../parts/status.js';
import { Storm } from '../parts/storm.js';

const BY = ['health', 'temp', 'power', 'load', 'risk', 'job'];

/** One open incident as a sentence, its cause, and what it touches. */
function IncidentRow({ incident, action, now, selected }) {
  const kind = severityKind(incident.severity);
  const ref = useRef();
  useEffect(() => { if (selected) ref.current.scrollIntoView({ block: 'nearest' }); }, [selected]);
  return html`<a ref=${ref} class=${cls('incident-row', selected && 'selected')} href=${href(`incidents/${incident.id}`)}>
    <${Shape} kind=${kind} label=${name('severity', incident.severity)} size=${14} />
    <div>
      <p class="what">${summaryOf(incident)}</p>
      <p class="facts"><span class="mono">${incident.root_cause.resource}</span><${Confidence} p=${incident.root_cause.confidence} /><span class="num">${fmt.dur((now - Date.parse(incident.opened)) / 1000)}</span><span class="num">${t('inc.n_alerts', { n: incident.alerts })}</span></p>
      ${action && html`<p class="next c-warning"><${Shape} kind="waiting" token="warning" size=${11} />${actionText(action)}</p>`}
    </div>
  </a>`;
}

function Headline({ summary, open, waiting }) {
  const { gpus } = summary;
  const facts = [[fmt.pct(gpus.total ? gpus.healthy / gpus.total : null, 1), 'fleet.healthy'], [fmt.num(gpus.used), 'fleet.used'], [fmt.num(gpus.free), 'fleet.free'], [fmt.num(gpus.out), 'fleet.out'], [summary.power_kw === null ? '–' : summary.power_kw > 2000 ? `${fmt.fixed(summary.power_kw / 1000, 1)} MW` : `${fmt.num(Math.round(summary.power_kw))} kW`, 'fleet.power'], [summary.samples_per_second === null ? '–' : fmt.compact(summary.samples_per_second), 'fleet.ingest']];
  return html`<header class="headline">
    <div><h1>${summary.servers === 0 ? t('fleet.unwatched') : open === 0 ? t('fleet.calm') : html`${t('fleet.headline', { open })}${t('fleet.comma')}<a href=${href('actions')} class=${waiting ? 'c-warning' : 'dim'}>${t('fleet.waits', { n: waiting })}</a>`}</h1>
    <p class="dim">${summary.simulated ? `${t('shell.simulated')} · ` : ''}${t('fleet.sub', { servers: summary.servers, gpus: gpus.total, racks: summary.racks })}</p></div>
    <dl class="facts-row">${facts.map(([value, label]) => html`<div><dd class="num">${value}</dd><dt>${t(label)}</dt></div>`)}</dl>
  </header>`;
}

export function FleetPage({ query }) {
  const fleet = useApi(FLEET);
  const incidents = useApi('incidents').data?.items ?? [];
  const waiting = useApi('actions?state=waiting&limit=100').data?.items ?? [];
  const expected = useApi('predictions?state=open').data;
  const predictions = useMemo(() => soonest(expected?.items), [expected]);
  const horizon = horizonOf(expected);
  const now = useNow(1000);
  const [at, setAt] = useState(-1);
  const [version, setVersion] = useState(0); // counts changes of state, so that the legend counts anew
  const onStates = useCallback(() => setVersion((n) => n + 1), []);
  const by = BY.includes(query.get('by')) ? query.get('by') : 'health';
  const only = query.has('only');
  const table = query.has('table');
  const open = incidents.filter((i) => i.status === 'open').sort((a, b) => (severityKind(b.severity) === 'critical') - (severityKind(a.severity) === 'critical') || Date.parse(b.opened) - Date.parse(a.opened));
  const repair = incidents.filter((i) => i.status === 'repair');
  const rows = [...open, ...repair];
  useKeys({ j: () => setAt((i) => Math.min(rows.length - 1, i + 1)), k: () => setAt((i) => Math.max(0, i - 1)), Enter: () => (at >= 0 && document.activeElement.tagName !== 'A' ? go(`incidents/${rows[at].id}`) : false) });
  const toggle = (key, on) => setQuery({ [key]: on ? null : '1' });

  return html`<${Await} of=${fleet} height=${600}>${(picture) => (picture.summary.servers === 0
    ? html`<${Headline} summary=${picture.summary} open=${0} waiting=${0} /><${Panel}><${Note} title=${t('fleet.empty')} hint=${t('fleet.empty_hint')} action=${html`<pre class="command">auspex cmdb import topology.json${'\n'}auspex run --demo</pre>`} /><//>`
    : html`
    <${Headline} summary=${picture.summary} open=${open.length} waiting=${waiting.length} />
    <div class="fleet-grid">
      <div class="column">
        <${Panel} title=${t('fleet.wrong')} id="wrong" aside=${html`<span class="dim num">${open.length}</span>`} flush>
          ${open.length === 0 && html`<${Note} title=${t('fleet.no_incident')} />`}
          ${open.map((i, k) => html`<${IncidentRow} incident=${i} now=${now} selected=${at === k} action=${waiting.find((a) => a.incident === i.id)} />`)}
          ${repair.length > 0 && html`<h3 class="sub">${t('fleet.repair')}</h3>`}
          ${repair.map((i, k) => html`<a class=${cls('repair-row', at === open.length + k && 'selected')} href=${href(`incidents/${i.id}`)}><${Shape} kind="acting" token="action" label=${t('state.acting')} /><span>${summaryOf(i)}</span></a>`)}
        <//>
        <${Panel} title=${t('fleet.next')} id="next" aside=${html`<a href=${href('predictions')}>${t('all')}</a>`} flush>
          ${predictions.length === 0 && html`<${Note} title=${t('fleet.no_prediction')} />`}
          ${predictions.slice(0, 4).map((p) => html`<a class="predict-row" href=${href(`servers/${p.server}${p.resource.startsWith(`${p.server}/`) ? `?part=${p.resource.slice(p.server.length + 1)}` : ''}`)}><${Shape} kind="predicted" label=${t('state.predicted')} /><span class="mono">${p.resource}</span><span class="dim">${failureOf(p)}</span><${Interval} from=${p.eta_p10} mid=${p.eta_p50} to=${p.eta_p90} now=${clock.now()} horizon=${horizon} /><b class="num">${fmt.prob(p.probability)}</b></a>`)}
          ${predictions.length > 0 && html`<div class="predict-row scale-row" aria-hidden="true"><i></i><i></i><i></i><${IntervalScale} horizon=${horizon} /><i></i></div>`}
        <//>
      </div>
      <div class="column">
        <${Panel} title=${t('fleet.map')} id="map" class="map-panel" aside=${html`<button class=${cls('btn small', only && 'on')} aria-pressed=${only ? 'true' : 'false'} onClick=${() => toggle('only', only)}>${t('map.only')}</button><button class=${cls('btn small', table && 'on')} aria-pressed=${table ? 'true' : 'false'} onClick=${() => toggle('table', table)}>${t('map.table')}</button><${Segments} label=${t('by.label')} value=${by} options=${BY.map((key) => [key, t(`by.${key}`)])} onChange=${(key) => setQuery({ by: key === 'health' ? null : key })} />`}>
          <div class="map-tools"><${Legend} picture=${picture} by=${by} version=${version} /></div>
          ${table ? html`<${FleetTable} picture=${picture} only=${only} />` : html`<${HeatMap} picture=${picture} by=${by} only=${only} height=${540} onStates=${onStates} />`}
        <//>
        <${Storm} history=${picture.history} now=${now} />
      </div>
    </div>`)}<//>`;
}
