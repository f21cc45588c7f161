// Servers by the state of their life, and the steps of it that a person takes.
import { html, useRef, useState } from '../lib/html.js';
import { newKey, post, remove, useApi } from '../lib/api.js';
import { fmt, t } from '../lib/i18n.js';
import { setQuery } from '../lib/router.js';
import { Res, Segments } from './bits.js';
import { BringUpButton, Life, STATUSES } from './bringup.js';
import { useMay } from './ladder.js';
import { useNames } from './maintenance.js';
import { Pages } from './pages.js';
import { Note, Panel } from './panel.js';
import { Question } from './question.js';

const PAGE = 20;

function Retire({ server, onClose, onDone }) {
  return html`<${Question} id="retire" title=${t('inv.retire_what', { server: server.name })} button=${t('inv.retire_now', { server: server.name })} onClose=${onClose} onDone=${onDone} send=${() => remove(`servers/${encodeURIComponent(server.id)}`)}>
    <p class="text-2">${t('inv.retire_means')}</p><//>`;
}

function Row({ server: s }) {
  const denied = useMay('inventory');
  const [told, setTold] = useState('');
  const [asking, setAsking] = useState(false);
  const validate = () => post('workflows', { type: 'validate', server_id: s.id }).then(() => setTold(t('inv.validating')), (e) => setTold(`${e.message} ${e.hint ?? ''}`));
  const off = { disabled: Boolean(denied), title: denied ?? undefined };
  return html`<tr class="row"><td><${Res} id=${s.name} /><br /><span class="dim">${s.model || '–'}</span></td><td class="mono">${s.serial_number || '–'}</td>
    <td class="wrap"><${Life} server=${s} /></td>
    <td>${s.pool}<br /><span class="dim">${s.place?.rack ?? ''}</span></td>
    <td class="does">${['discovered', 'error'].includes(s.status) && html`<${BringUpButton} server=${s.name} status=${s.status} onBegun=${setTold} /> `}${['discovered', 'error', 'ready'].includes(s.status) && html`<button class="btn small" ...${off} onClick=${validate}>${t('inv.validate')}</button>`}${['ready', 'error'].includes(s.status) && html` <button class="btn small" ...${off} onClick=${() => setAsking(true)}>${t('inv.retire')}</button>`}
      ${told && html`<p class="feedback" role="status">${told}</p>`}${asking && html`<${Retire} server=${s} onClose=${() => setAsking(false)} onDone=${() => { setAsking(false); setTold(t('inv.retired')); }} />`}</td></tr>`;
}

/** The servers of a state, or all that are not retired. */
export const Servers = ({ status }) => html`<${Panel} title=${t('inv.servers')} id="servers" flush aside=${html`<${Segments} label=${t('inv.state')} value=${status} options=${[['', t('inv.all')], ...STATUSES.map((s) => [s, t(`inv.is.${s}`)])]} onChange=${(s) => setQuery({ status: s || null })} />`}>
  <${Pages} key=${status} path=${`servers?limit=${PAGE}&sort=${status ? '-status_since' : 'name'}${status ? `&status=${status}` : ''}`} height=${200} more="agt.more">${({ items }, first) => (items.length === 0 ? first && html`<${Note} title=${t('inv.none')} />` : html`<div class="scroll"><table class="table tight allocations">
    ${first && html`<thead><tr><th>${t('inv.server')}</th><th>${t('inv.serial')}</th><th>${t('inv.state')}</th><th>${t('inv.pool')}</th><th aria-label=${t('alo.do')}></th></tr></thead>`}<tbody>${items.map((s) => html`<${Row} key=${s.id} server=${s} />`)}</tbody></table></div>`)}<//><//>`;

const FIELDS = ['model', 'serial_number', 'redfish_url', 'ipmi_ip', 'credential'];

/** Registers a server: by hand, or one that a sweep has found. */
export function Register({ find, onClose, onDone }) {
  const place = find.proposal?.places[0];
  const [values, setValues] = useState({ name: find.proposal?.name ?? '', parent: place?.parent ?? '' });
  const key = useRef(newKey());
  const names = useNames(values.parent);
  const field = (name, more) => html`<label for=${`inv-${name}`}>${t(`inv.f.${name}`)}</label><input id=${`inv-${name}`} class="field mono" spellcheck="false" autocomplete="off" value=${values[name] ?? ''} onInput=${(e) => setValues({ ...values, [name]: e.target.value })} ...${more} />`;
  const send = () => post('servers', { ...Object.fromEntries(Object.entries(values).filter(([, v]) => v)), ...(find.id ? { found: find.id } : {}) }, key.current);
  return html`<${Question} id="register" title=${find.id ? t('inv.register_found', { address: find.address }) : t('inv.register')} button=${t('inv.register')} onClose=${onClose} onDone=${onDone} send=${send}>
    <p class="text-2">${t('inv.register_means')}</p>
    <div class="form">${field('name', { required: true, maxlength: 200 })}${field('parent', { list: 'inv-names' })}<datalist id="inv-names">${names.map((n) => html`<option value=${n} />`)}</datalist>
      ${!find.id && FIELDS.map((name) => field(name))}</div>
    ${place && html`<p class="dim">${place.reason} (${fmt.prob(place.confidence)})</p>`}<//>`;
}
