// The value of any metric, now and over time.
import { html, useMemo, useState } from '../lib/html.js';
import { fmt, t } from '../lib/i18n.js';
import { useMetrics, useRange } from '../lib/promql.js';
import { setQuery } from '../lib/router.js';
import { Segments } from '../parts/bits.js';
import { Note, Panel } from '../parts/panel.js';
import { Lines } from '../parts/plot.js';

const COLOURS = ['action', 'warning', 'predicted', 'ok', 'critical', 'cat-3', 'cat-5', 'text-3'];
const RANGES = { '15m': 900, '1h': 3600, '6h': 21_600, '24h': 86_400 };
const EXAMPLES = [
  'max by (rack) (DCGM_FI_DEV_GPU_TEMP)',
  'sum by (rack) (DCGM_FI_DEV_POWER_USAGE) / 1000',
  'topk(5, rate(DCGM_FI_DEV_PCIE_REPLAY_COUNTER[2m]))',
  'bottomk(5, auspex_fan_speed_rpm)',
];
const SHOWN = 40;

const nameOf = (metric) => {
  const { __name__: head = '', ...labels } = metric;
  const keys = Object.keys(labels);
  return keys.length === 0 ? head || '{}' : keys.length === 1 ? labels[keys[0]] : `${head}{${keys.map((k) => `${k}="${labels[k]}"`).join(', ')}}`;
};

export function ExplorePage({ query }) {
  const metrics = useMetrics();
  const asked = query.get('q') ?? EXAMPLES[0];
  const rangeName = RANGES[query.get('range')] ? query.get('range') : '15m';
  const [draft, setDraft] = useState(null);
  const { times, series, error, busy } = useRange(asked, RANGES[rangeName]);
  const shown = useMemo(() => (series ?? []).slice(0, SHOWN), [series]);
  const rows = useMemo(() => shown.map((s) => { const known = s.values.filter((v) => v !== null); return { name: nameOf(s.metric), last: known.at(-1) ?? null, min: known.length ? Math.min(...known) : null, max: known.length ? Math.max(...known) : null }; }), [shown]);
  const run = (text) => { setDraft(null); setQuery({ q: text }); };
  const curl = `curl -G ${new URL('prometheus/api/v1/query_range', document.baseURI)} -H "Authorization: Bearer $TOKEN" \\\n  --data-urlencode 'query=${asked}' -d start=$(date -d -${rangeName.replace('m', 'min').replace('h', 'hour')} +%s) -d end=$(date +%s) -d step=15`;
  return html`<h1 class="sr">${t('exp.title')}</h1>
    <${Panel}>
      <form class="query" onSubmit=${(e) => { e.preventDefault(); run(draft ?? asked); }}>
        <label for="promql">${t('exp.query')}</label><input id="promql" class="field mono" spellcheck="false" autocomplete="off" list="metrics" value=${draft ?? asked} onInput=${(e) => setDraft(e.target.value)} /><datalist id="metrics">${metrics.map((m) => html`<option value=${m}></option>`)}</datalist>
        <button class="btn primary">${t('exp.run')}</button>
        <${Segments} label=${t('dev.range')} value=${rangeName} options=${Object.keys(RANGES).map((r) => [r, r])} onChange=${(r) => setQuery({ range: r === '15m' ? null : r })} />
      </form>
      <p class="chips"><span class="dim">${t('exp.examples')}</span>${EXAMPLES.map((q) => html`<button class="chip mono" onClick=${() => run(q)}>${q}</button>`)}</p>
    <//>
    ${error && html`<${Panel}><${Note} tone="bad" title=${`${t('exp.failed')}: ${error.message}`} /><//>`}
    ${!error && (series === null ? html`<div class="skeleton" style=${{ height: '340px' }} aria-busy="true"><span class="sr">${t('load.wait')}</span></div>` : shown.length === 0 ? html`<${Panel}><${Note} title=${busy ? t('load.wait') : metrics.length ? t('exp.nothing') : t('exp.empty')} /><//>` : html`
    <${Panel} title=${t('exp.series', { n: series.length })} id="plot" aside=${series.length > SHOWN && html`<span class="dim">${t('exp.first', { n: SHOWN })}</span>`}><${Lines} times=${times} series=${shown} height=${340} colours=${COLOURS} /><//>
    <${Panel} title=${t('exp.label')} id="series" flush><div class="scroll"><table class="table tight"><thead><tr><th class="thin"></th><th>${t('exp.label')}</th><th class="r">${t('exp.last')}</th><th class="r">${t('exp.min')}</th><th class="r">${t('exp.max')}</th></tr></thead><tbody>${rows.map((r, k) => html`<tr><td><i class="swatch" style=${{ background: `var(--${COLOURS[k % COLOURS.length]})` }}></i></td><td class="mono wrap">${r.name}</td><td class="r num">${fmt.num(r.last)}</td><td class="r num">${fmt.num(r.min)}</td><td class="r num">${fmt.num(r.max)}</td></tr>`)}</tbody></table></div><//>
    <${Panel} title=${t('exp.curl')} id="curl"><pre class="command">${curl}</pre><//>`)}`;
}
