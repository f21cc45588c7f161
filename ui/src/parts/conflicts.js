// What is said of a resource in two ways that cannot both be so, and what somebody has decided.
import { html, useState } from '../lib/html.js';
import { post } from '../lib/api.js';
import { fmt, t } from '../lib/i18n.js';
import { Segments } from './bits.js';
import { useMay } from './ladder.js';
import { Pages } from './pages.js';
import { Note, Panel } from './panel.js';
import { Question } from './question.js';
import { Shape } from './status.js';

const PAGE = 10;

const Side = ({ side, chosen }) => html`<div class=${chosen ? 'side on' : 'side'}><span class="mono">${side.value || '–'}</span><br /><span class="dim">${side.source}${side.owner ? ` (${side.owner})` : ''}${side.resource ? `, ${side.resource}` : ''}${side.time ? `, ${fmt.stamp(Date.parse(side.time))} UTC` : ''}</span></div>`;

function Decide({ conflict: c, decision, onClose, onDone }) {
  const [comment, setComment] = useState('');
  const value = c[decision]?.value;
  return html`<${Question} id="decide" title=${t('inv.decide_what', { resource: c.resource, field: c.field })} button=${decision === 'dismissed' ? t('inv.dismiss') : t('inv.say', { value })} onClose=${onClose} onDone=${onDone} send=${() => post(`conflicts/${encodeURIComponent(c.id)}`, { decision, ...(comment ? { comment } : {}) })}>
    <p class="text-2">${t('inv.decide_means')}</p>
    <div class="form"><label for="inv-comment">${t('inv.comment')}</label><input id="inv-comment" class="field" maxlength="500" value=${comment} onInput=${(e) => setComment(e.target.value)} /></div><//>`;
}

/** What the comment of a conflict says that is settled because its resource is no longer there. */
const GONE = 'The inventory does not have it any more.';

function Row({ conflict: c }) {
  const denied = useMay('inventory');
  const [asking, setAsking] = useState(null);
  const off = { disabled: Boolean(denied), title: denied ?? undefined };
  const open = c.status === 'open';
  return html`<li class="conflict"><h3><${Shape} kind=${open ? 'warning' : 'done'} token=${open ? 'warning' : 'ok'} size=${11} /> <span class="mono">${c.resource}</span> <span class="dim">${t(`inv.about.${c.kind}`, { field: c.field })}</span></h3>
    <div class="sides"><${Side} side=${c.left} chosen=${c.decision === 'left'} /><${Side} side=${c.right} chosen=${c.decision === 'right'} /></div>
    ${open ? html`<p class="does"><button class="btn small" ...${off} onClick=${() => setAsking('left')}>${t('inv.left')}</button> <button class="btn small" ...${off} onClick=${() => setAsking('right')}>${t('inv.right')}</button> <button class="btn small" ...${off} onClick=${() => setAsking('dismissed')}>${t('inv.dismiss')}</button></p>`
      : c.status === 'settled' ? html`<p class="dim">${t(c.comment === GONE ? 'inv.gone_at' : 'inv.settled_at', { when: fmt.stamp(Date.parse(c.decided_at)) })}</p>`
      : html`<p class="dim">${t('inv.decided', { who: c.decided_by, when: fmt.stamp(Date.parse(c.decided_at)) })}${c.decision === 'dismissed' ? ` · ${t('inv.dismissed')}` : ''}${c.comment ? ` · ${c.comment}` : ''}</p>`}
    ${asking && html`<${Decide} conflict=${c} decision=${asking} onClose=${() => setAsking(null)} onDone=${() => setAsking(null)} />`}</li>`;
}

export function Conflicts() {
  const [status, setStatus] = useState('open');
  return html`<${Panel} title=${t('inv.conflicts')} id="conflicts" aside=${html`<${Segments} label=${t('inv.conflicts')} value=${status} options=${[['open', t('inv.open')], ['decided', t('inv.were')], ['settled', t('inv.settled')]]} onChange=${setStatus} />`}>
    <${Pages} key=${status} path=${`conflicts?limit=${PAGE}&status=${status}`} height=${60} more="agt.more">${({ items }, first) => (items.length === 0 ? first && html`<${Note} title=${t(`inv.no_${status}`)} />` : html`<ul>${items.map((c) => html`<${Row} key=${c.id} conflict=${c} />`)}</ul>`)}<//><//>`;
}
