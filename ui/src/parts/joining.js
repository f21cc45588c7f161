// Who may dial in: the machines that have, and the tokens with which others may.
import { html, useModal, useRef, useState } from '../lib/html.js';
import { post, remove, useApi } from '../lib/api.js';
import { clock } from '../lib/clock.js';
import { fmt, t } from '../lib/i18n.js';
import { useKeys } from '../lib/keys.js';
import { href } from '../lib/router.js';
import { nameOf } from './enrolment.js';
import { useMay } from './ladder.js';
import { useNames } from './maintenance.js';
import { Pages } from './pages.js';
import { Await, Note, Panel } from './panel.js';
import { Shape } from './status.js';

const PAGE = 50;
const MANY = 1000; // machines of which a revocation names some
const NAMED = 6;
const EVERY_MS = 15_000;
const LASTS = [3600, 86_400, 604_800, 2_592_000];
const DIAL_PORT = '9340';
const TOKEN_STATES = { open: ['ok', 'ok'], used: ['done', 'out'], expired: ['later', 'out'], revoked: ['failed', 'out'] };

const ago = (at) => fmt.dur((clock.now() - Date.parse(at)) / 1000);
const titled = (at) => `${fmt.stamp(Date.parse(at))} UTC`;

/** Asks before something is cut off, and says what. */
function Cut({ title, means, path, button, onClose, onDone }) {
  const dialog = useModal(onClose);
  const [error, setError] = useState(null);
  const [busy, setBusy] = useState(false);
  useKeys({ modal: true, Escape: onClose });
  const cut = () => { setBusy(true); remove(path).then(onDone, (failure) => { setBusy(false); setError(failure); }); };
  return html`<dialog class="ask" ref=${dialog} aria-labelledby="cut-title"><h2 id="cut-title">${title}</h2>${means.map((line) => html`<p class="text-2">${line}</p>`)}
    ${error && html`<p class="c-critical" role="alert">${error.message} ${error.hint}</p>`}
    <footer><button class="btn" onClick=${onClose}>${t('act.back')}</button><button class="btn primary" disabled=${busy} onClick=${cut}>${button}</button></footer></dialog>`;
}

/** A text to copy; where the browser keeps the clipboard to itself, it is marked. */
function Copy({ label, text, rows }) {
  const area = useRef();
  const [done, setDone] = useState(false);
  const copy = () => {
    area.current.select();
    navigator.clipboard?.writeText(text).then(() => setDone(true), () => {});
  };
  return html`<label class="copy"><span>${label}</span><textarea ref=${area} class="field mono" readonly rows=${rows} spellcheck="false" value=${text}></textarea></label>
    <p><button type="button" class="btn small" onClick=${copy}>${t('join.copy')}</button> <span class="dim" role="status">${done ? t('join.copied') : ''}</span></p>`;
}

/** The token, once, and what goes where on the machine. */
function Made({ token, listen, onClose }) {
  const dialog = useModal(onClose);
  useKeys({ modal: true, Escape: onClose });
  const port = listen?.slice(listen.lastIndexOf(':') + 1) || DIAL_PORT;
  const lines = `dial:\n  - address: "${location.hostname}:${port}"\n    ca_file: /etc/auspex-agent/ca.pem\n    token_file: /etc/auspex-agent/join.token`;
  return html`<dialog class="ask" ref=${dialog} aria-labelledby="made-title"><h2 id="made-title">${t('join.made', { name: token.name })}</h2>
    <p class="text-2">${t('join.once')}</p>
    <${Copy} label="/etc/auspex-agent/join.token" text=${token.token} rows=${2} />
    <${Copy} label="/etc/auspex-agent/agent.yaml" text=${lines} rows=${5} />
    <p class="dim">${t('join.address')} ${listen ? '' : t('join.no_listen')}</p>
    <footer><button class="btn primary" onClick=${onClose}>${t('join.kept')}</button></footer></dialog>`;
}

function Create({ onClose, onMade }) {
  const dialog = useModal(onClose);
  const [name, setName] = useState('');
  const [server, setServer] = useState('');
  const [uses, setUses] = useState(1);
  const [expires, setExpires] = useState(86_400);
  const [accept, setAccept] = useState(false);
  const [error, setError] = useState(null);
  const [busy, setBusy] = useState(false);
  const names = useNames(server, 'server');
  useKeys({ modal: true, Escape: onClose });
  const send = (event) => {
    event.preventDefault();
    setBusy(true);
    post('join-tokens', { name, uses: server ? 1 : uses, expires_in: expires, accept, ...(server ? { server } : {}) }).then(onMade, (failure) => { setBusy(false); setError(failure); });
  };
  return html`<dialog class="ask" ref=${dialog} aria-labelledby="join-title"><form onSubmit=${send}><h2 id="join-title">${t('join.create')}</h2>
    <p class="text-2">${t('join.means')}</p>
    <div class="form">
      <label for="join-name">${t('join.name')}</label><input id="join-name" class="field mono" required maxlength="64" pattern="[A-Za-z0-9._@\\-]+" spellcheck="false" autocomplete="off" value=${name} onInput=${(e) => setName(e.target.value)} />
      <label for="join-server">${t('join.server')}</label><input id="join-server" class="field mono" list="join-servers" spellcheck="false" autocomplete="off" value=${server} onInput=${(e) => setServer(e.target.value)} /><datalist id="join-servers">${names.map((n) => html`<option value=${n} />`)}</datalist>
      <label for="join-uses">${t('join.uses')}</label><input id="join-uses" class="field num" type="number" min="1" max="100000" required disabled=${server !== ''} value=${server ? 1 : uses} onInput=${(e) => setUses(Number(e.target.value))} />
      <label for="join-expires">${t('join.expires')}</label><select id="join-expires" class="field" onChange=${(e) => setExpires(Number(e.target.value))}>${LASTS.map((s) => html`<option value=${s} selected=${s === expires}>${fmt.dur(s)}</option>`)}</select>
      <label class="check"><input type="checkbox" checked=${accept} onChange=${(e) => setAccept(e.target.checked)} /> <span>${t('join.accept')}</span></label>
    </div>
    ${error && html`<p class="c-critical" role="alert">${error.message} ${error.hint}</p>`}
    <footer><button type="button" class="btn" onClick=${onClose}>${t('act.back')}</button><button class="btn primary" disabled=${busy}>${t('join.create')}</button></footer></form></dialog>`;
}

function Token({ token: k, denied, onCut }) {
  const [kind, shade] = TOKEN_STATES[k.state] ?? TOKEN_STATES.expired;
  const more = [k.server && t('join.for', { server: k.server }), k.accept && t('join.accepts'), k.state === 'open' && t('join.until', { age: fmt.dur((Date.parse(k.expires) - clock.now()) / 1000) }),
    k.revoked && t('join.revoked', { who: k.revoked_by ?? '', when: fmt.stamp(Date.parse(k.revoked)) }), k.refused > 0 && t('join.refused', { n: k.refused, from: k.refused_from ?? '', age: k.refused_at ? ago(k.refused_at) : '' })].filter(Boolean);
  return html`<li class="repair-row"><${Shape} kind=${kind} token=${shade} label=${t(`join.is.${k.state}`)} />
    <span><b class="mono">${k.name}</b> ${t(`join.is.${k.state}`)} · <span class="num">${t('join.used', { used: k.used, uses: k.uses })}</span><br /><span class="dim" title=${titled(k.expires)}>${[...more, t('join.by', { who: k.created_by })].join(' · ')}</span></span>
    ${k.state !== 'revoked' && html`<button class="btn small" disabled=${Boolean(denied)} title=${denied ?? undefined} onClick=${() => onCut(k)}>${t('join.revoke')}</button>`}</li>`;
}

/** The machines that a token let in and that are let in still, by what people call them. */
const lettingIn = (machines, token) => machines.filter((m) => m.token === token && m.admitted).map((m) => m.server || m.hostname || nameOf(m.key));

/** Join tokens, and the way to make one. */
export function Tokens() {
  const path = `join-tokens?limit=${PAGE}`;
  const answer = useApi(path, { every: EVERY_MS });
  const machines = useApi(`machines?limit=${MANY}`);
  const denied = useMay('enrol');
  const [cutting, setCutting] = useState(null);
  const [making, setMaking] = useState(false);
  const [made, setMade] = useState(null);
  const done = () => { setCutting(null); answer.reload(); machines.reload(); };
  const cut = cutting && lettingIn(machines.data?.items ?? [], cutting.name);
  const button = html`<button class="btn small" disabled=${Boolean(denied)} title=${denied ?? undefined} onClick=${() => setMaking(true)}>${t('join.create')}</button>`;
  return html`<${Panel} title=${t('join.title')} id="tokens" flush aside=${button}>
    ${denied && html`<p class="dim why">${denied}</p>`}
    <${Pages} path=${path} height=${60} more="agt.more">${({ items }, first) => (first && items.length === 0 ? html`<${Note} title=${t('join.none')} hint=${t('join.none_hint')} />` : html`<ul class="windows">${items.map((k) => html`<${Token} key=${k.name} token=${k} denied=${denied} onCut=${setCutting} />`)}</ul>`)}<//>
    ${making && html`<${Create} onClose=${() => setMaking(false)} onMade=${(token) => { setMaking(false); setMade(token); answer.reload(); }} />`}
    ${made && html`<${Made} token=${made} listen=${answer.data?.listen} onClose=${() => setMade(null)} />`}
    ${cutting && html`<${Cut} title=${t('join.ask_token', { name: cutting.name })} path=${`join-tokens/${encodeURIComponent(cutting.name)}`} button=${t('join.revoke_what', { name: cutting.name })} onClose=${() => setCutting(null)} onDone=${done}
      means=${[cut.length === 0 && !machines.data?.next ? t('join.cuts_none') : t('join.cuts', { n: Math.max(cut.length, machines.data?.next ? cutting.used : 0), names: cut.slice(0, NAMED).join(', '), more: Math.max(0, cut.length - NAMED) }), t('join.cut_for_good')]} />`}
  <//>`;
}

function Machine({ machine: m, denied, onCut }) {
  const state = m.admitted ? (m.server ? ['ok', 'ok', 'in'] : ['waiting', 'warning', 'lost']) : ['failed', 'out', 'revoked'];
  return html`<tr><td><b>${m.hostname || nameOf(m.key)}</b><br /><span class="dim mono" title=${m.key}>${[nameOf(m.key), m.serial].filter(Boolean).join(' · ')}</span></td>
    <td class=${`c-${state[1]}`}><${Shape} kind=${state[0]} token=${state[1]} size=${11} /> ${m.admitted && m.server ? html`<a class="mono" href=${href(`servers/${encodeURIComponent(m.server)}`)}>${m.server}</a>` : t(`mach.is.${state[2]}`)}${m.doubt && html`<br /><span class="text-2">${m.doubt}</span>`}${!m.admitted && m.revoked && html`<br /><span class="dim">${t('join.revoked', { who: m.revoked_by ?? '', when: fmt.stamp(Date.parse(m.revoked)) })}</span>`}</td>
    <td class="mono">${m.token}</td><td class="num" title=${titled(m.joined)}>${ago(m.joined)}</td><td class="num" title=${titled(m.seen)}>${ago(m.seen)}<br /><span class="dim mono">${m.address ?? ''}</span></td><td class="mono dim">${m.version ?? ''}</td>
    <td>${m.admitted && html`<button class="btn small" disabled=${Boolean(denied)} title=${denied ?? undefined} onClick=${() => onCut(m)}>${t('join.revoke')}</button>`}</td></tr>`;
}

/** Machines that have dialled in, wherever they stand. */
export function Machines() {
  const path = `machines?limit=${PAGE}`;
  const answer = useApi(path, { every: EVERY_MS });
  const denied = useMay('enrol');
  const [cutting, setCutting] = useState(null);
  const called = cutting && (cutting.server || cutting.hostname || nameOf(cutting.key));
  if (answer.error?.status === 503) return null; // a process without the store
  return html`<${Panel} title=${t('mach.title')} id="machines" flush>
    <${Await} of=${answer} height=${60}>${({ items }) => (items.length === 0 ? html`<${Note} title=${t('mach.none')} hint=${t('mach.none_hint')} />` : html`<${Pages} path=${path} more="agt.more">${({ items: some }) => html`<div class="scroll"><table class="table tight machines"><thead><tr><th>${t('mach.machine')}</th><th>${t('mach.server')}</th><th>${t('mach.token')}</th><th>${t('mach.joined')}</th><th>${t('mach.seen')}</th><th>${t('agt.version')}</th><th></th></tr></thead>
      <tbody>${some.map((m) => html`<${Machine} key=${m.key} machine=${m} denied=${denied} onCut=${setCutting} />`)}</tbody></table></div>`}<//>`)}<//>
    ${cutting && html`<${Cut} title=${t('mach.ask', { name: called })} path=${`machines/${cutting.key}`} button=${t('mach.cut', { name: called })} onClose=${() => setCutting(null)} onDone=${() => { setCutting(null); answer.reload(); }}
      means=${[t(cutting.server ? 'mach.cuts' : 'mach.cuts_nowhere', { server: cutting.server }), t('mach.cut_for_good')]} />`}
  <//>`;
}
