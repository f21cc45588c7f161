// Every resource of the inventory, and what it was: who changed what, when, and from which source.
import { html, useState } from '../lib/html.js';
import { clock } from '../lib/clock.js';
import { fmt, name, t } from '../lib/i18n.js';
import { setQuery } from '../lib/router.js';
import { Res } from './bits.js';
import { Pages } from './pages.js';
import { Note, Panel } from './panel.js';
import { Shape } from './status.js';

const PAGE = 20;
const KINDS = ['server', 'gpu', 'nic', 'disk', 'psu', 'fan', 'switch', 'rack', 'pdu'];
const CHANGES = { added: ['done', 'ok'], changed: ['acting', 'action'], removed: ['failed', 'out'] };

const stamp = (iso) => `${fmt.stamp(Date.parse(iso))} UTC`;

const Difference = ({ d }) => html`<li><span class="mono">${d.attribute}</span> ${d.was && html`<del class="dim">${d.was}</del>`} ${d.is && html`<ins>${d.is}</ins>`}</li>`;

const Version = ({ v }) => html`<li class="version"><${Shape} kind=${(CHANGES[v.change] ?? CHANGES.changed)[0]} token=${(CHANGES[v.change] ?? CHANGES.changed)[1]} size=${11} />
  <div><b>${t(`inv.did.${v.change}`)}</b>${v.time && html` <span class="num">${stamp(v.time)}</span>`} <span class="dim">${t('inv.from', { who: v.by || '–', source: v.source, origin: v.origin || '–' })}</span>
    ${v.differences.length > 0 && html`<ul class="differences">${v.differences.map((d) => html`<${Difference} d=${d} />`)}</ul>`}</div></li>`;

const Versions = ({ asset: a }) => html`<dl class="facts">${Object.entries(a.attrs).map(([k, v]) => html`<div><dt>${k}</dt><dd class="mono">${v}</dd></div>`)}</dl>
  <ol class="versions"><${Pages} path=${`assets/${encodeURIComponent(a.id)}/versions?limit=${PAGE}`} height=${60}>${({ items }) => items.map((v) => html`<${Version} key=${v.version} v=${v} />`)}<//></ol>`;

function Row({ asset: a }) {
  const [open, setOpen] = useState(false);
  return html`<tr class="row"><td class="wrap"><button class="fold mono" aria-expanded=${open ? 'true' : 'false'} onClick=${() => setOpen(!open)}>${a.name}</button></td><td>${name('part', a.kind)}</td><td class="mono">${a.attrs.serial ?? a.attrs.mac ?? ''}</td>
      <td>${a.changed_at ? html`<span title=${stamp(a.changed_at)}>${t('alo.ago', { age: fmt.dur((clock.now() - Date.parse(a.changed_at)) / 1000) })}</span>` : '–'}<br /><span class="dim">${a.source}</span></td></tr>
    ${open && html`<tr class="detail"><td colspan="4">${a.kind === 'server' && html`<p><${Res} id=${a.name} text=${t('inv.page_of', { name: a.name })} /></p>`}<${Versions} asset=${a} /></td></tr>`}`;
}

export function Assets({ q, kind }) {
  const [text, setText] = useState(q);
  const path = `assets?limit=${PAGE}${kind ? `&kind=${kind}` : ''}${q ? `&q=${encodeURIComponent(q)}` : ''}`;
  const search = (event) => { event.preventDefault(); setQuery({ q: text.trim() || null }); };
  return html`<${Panel} title=${t('inv.assets')} id="assets" flush aside=${html`<form class="find" role="search" onSubmit=${search}>
      <select class="field" aria-label=${t('inv.kind')} value=${kind} onChange=${(e) => setQuery({ kind: e.target.value || null })}><option value="">${t('inv.any_kind')}</option>${KINDS.map((k) => html`<option value=${k} selected=${k === kind}>${name('part', k)}</option>`)}</select>
      <input class="field" type="search" aria-label=${t('inv.find')} placeholder=${t('inv.find')} value=${text} onInput=${(e) => setText(e.target.value)} /></form>`}>
    <${Pages} key=${path} path=${path} height=${200} more="agt.more">${({ items }, first) => (items.length === 0 ? first && html`<${Note} title=${t('inv.none_found')} />` : html`<div class="scroll"><table class="table tight allocations">${first && html`<thead><tr><th>${t('inv.name')}</th><th>${t('inv.kind')}</th><th>${t('inv.serial')}</th><th>${t('inv.changed')}</th></tr></thead>`}<tbody>${items.map((a) => html`<${Row} key=${a.id} asset=${a} />`)}</tbody></table></div>`)}<//><//>`;
}
