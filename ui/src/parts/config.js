// How a server, and the GPU that is picked, are to be set, and what has become of it.
import { html, useState } from '../lib/html.js';
import { post, useApi } from '../lib/api.js';
import { clock } from '../lib/clock.js';
import { fmt, t, textOf } from '../lib/i18n.js';
import { useMay } from './ladder.js';
import { Panel } from './panel.js';
import { Shape } from './status.js';

const EVERY_MS = 30_000;
const SHAPES = { pending: ['waiting', 'text'], applying: ['acting', 'action'], awaits: ['waiting', 'warning'], in_force: ['done', 'ok'], drifted: ['warning', 'warning'], rolled_back: ['failed', 'critical'], held: ['person', 'critical'], cannot: ['skipped', 'out'] };

function Row({ path, config, denied }) {
  const [error, setError] = useState(null);
  const kept = config.keeping;
  const [kind, token] = SHAPES[kept?.state] ?? SHAPES.pending;
  const later = kept?.next_attempt_at && Date.parse(kept.next_attempt_at) > clock.now() ? t('cfg.next', { at: fmt.clock(Date.parse(kept.next_attempt_at)) }) : '';
  const apply = () => post(`${path}/apply`).then(() => setError(null), setError);
  return html`<li class="repair-row"><${Shape} kind=${kind} token=${token} label=${t(`cfg.is.${kept?.state ?? 'pending'}`)} />
    <span><b class="mono">${config.gpu ?? config.server}</b> ${t('cfg.version', { version: config.version })} · ${t(`cfg.is.${kept?.state ?? 'pending'}`)}<br />
    <span class="dim">${kept ? textOf(kept.sentence, kept.detail) : t('cfg.unseen')} ${later}</span>
    ${kept?.drifts.map((d) => html`<br /><span class="mono">${d.setting}</span> ${t('cfg.drift', { found: d.found, desired: d.desired, since: fmt.stamp(Date.parse(d.since)) })}`)}
    ${kept?.unread && html`<br /><span class="dim">${t('cfg.unread', { error: kept.unread })}</span>`}
    ${error && html`<br /><span class="c-critical" role="alert">${error.message} ${error.hint}</span>`}</span>
    <button class="btn small" disabled=${Boolean(denied)} title=${denied ?? undefined} onClick=${apply}>${t('cfg.apply')}</button></li>`;
}

/** The configurations of a server and of the part that is picked; nothing where there are none. */
export function Config({ server, part }) {
  const denied = useMay('operate');
  const paths = [`servers/${encodeURIComponent(server)}/config`, /^gpu\d+$/.test(part ?? '') ? `gpus/${encodeURIComponent(`${server}/${part}`)}/config` : null];
  const latest = (path) => useApi(path && `${path}/versions?limit=1`, { every: EVERY_MS }).data?.items[0]; // a list is empty where there is none
  const rows = paths.map((path) => [path, latest(path)]).filter(([, config]) => config);
  if (rows.length === 0) return null;
  return html`<${Panel} title=${t('cfg.title')} id="config" flush><ul class="windows">${rows.map(([path, config]) => html`<${Row} key=${path} path=${path} config=${config} denied=${denied} />`)}</ul><//>`;
}
