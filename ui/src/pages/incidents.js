// What is open, and what was it last time?
import { cls, html, useState } from '../lib/html.js';
import { useApi } from '../lib/api.js';
import { useNow } from '../lib/clock.js';
import { fmt, name, t } from '../lib/i18n.js';
import { useKeys } from '../lib/keys.js';
import { go, href, setQuery } from '../lib/router.js';
import { Confidence, Segments, summaryOf } from '../parts/bits.js';
import { Judged } from '../parts/correct.js';
import { Edges } from '../parts/edges.js';
import { Hindsight } from '../parts/hindsight.js';
import { Await, Note, Panel } from '../parts/panel.js';
import { Shape, severityKind } from '../parts/status.js';

const FILTERS = ['open', 'repair', 'closed', 'all'];

export function IncidentsPage({ query }) {
  const list = useApi('incidents');
  const now = useNow(5000);
  const filter = query.get('status') ?? 'all';
  const rows = (list.data?.items ?? []).filter((i) => (filter === 'all' ? i.status !== 'merged' : i.status === filter));
  const [at, setAt] = useState(0);
  useKeys({ j: () => setAt((i) => Math.min(rows.length - 1, i + 1)), k: () => setAt((i) => Math.max(0, i - 1)), Enter: () => rows[at] && go(`incidents/${rows[at].id}`) });
  return html`<h1>${t('inc.title')}</h1>
    <${Panel} title=${t('inc.what')} id="list" flush aside=${html`<${Segments} label=${t('map.state')} value=${filter} options=${FILTERS.map((f) => [f, t(f === 'all' ? 'all' : `inc.${f}`)])} onChange=${(f) => { setAt(0); setQuery({ status: f === 'all' ? null : f }); }} />`}>
      <${Await} of=${list}>${() => (rows.length === 0 ? html`<${Note} title=${t('inc.none')} />` : html`<div class="scroll"><table class="table">
        <thead><tr><th></th><th>${t('inc.what')}</th><th>${t('inc.cause')}</th><th>${t('inc.confidence')}</th><th class="r">${t('inc.alerts')}</th><th class="r">${t('inc.servers')}</th><th class="r">${t('inc.lasts')}</th><th>${t('map.state')}</th></tr></thead>
        <tbody>${rows.map((i, k) => html`<tr class=${cls('row', k === at && 'selected')} onClick=${() => go(`incidents/${i.id}`)}>
          <td><${Shape} kind=${i.status === 'closed' ? 'done' : severityKind(i.severity)} token=${i.status === 'closed' ? 'out' : undefined} label=${name('severity', i.severity)} /></td>
          <td class="wrap"><a href=${href(`incidents/${i.id}`)}>${summaryOf(i)}</a></td><td class="mono">${i.root_cause.resource}</td><td><${Confidence} p=${i.root_cause.confidence} /></td>
          <td class="r num">${i.alerts}</td><td class="r num">${i.affected.length}</td><td class="r num">${fmt.dur(((i.closed ? Date.parse(i.closed) : now) - Date.parse(i.opened)) / 1000)}</td><td>${t(`inc.${i.status}`)} <${Judged} correction=${i.correction} /></td></tr>`)}</tbody></table></div>`)}<//>
    <//>
    <${Hindsight} />
    <${Edges} />`;
}
