// The palette: one box that finds pages, servers, incidents and commands. Opened with / or mod+k.
import { cls, html, useEffect, useMemo, useModal, useRef, useState } from '../lib/html.js';
import { FLEET, ask, useApi } from '../lib/api.js';
import { t } from '../lib/i18n.js';
import { useKeys } from '../lib/keys.js';
import { go } from '../lib/router.js';
import { summaryOf } from './bits.js';

const SHOWN = 9;
const PAUSE_MS = 150; // between the last key and the question
const IDENTITY = /^(?=\S*\d)\S{4,}$/;

const pageOf = (resource) => {
  const [server, ...part] = resource.split('/');
  return `servers/${encodeURIComponent(server)}${part.length ? `?part=${encodeURIComponent(part.join('/'))}` : ''}`;
};

/** Letters of the query in order, closer and earlier is better; null when it does not match. */
export function match(query, text) {
  let at = -1;
  let cost = 0;
  for (const letter of query.toLowerCase()) {
    const next = text.toLowerCase().indexOf(letter, at + 1);
    if (next < 0) return null;
    cost += at < 0 ? next : (next - at - 1) * 3;
    at = next;
  }
  return cost;
}

export function Palette({ onClose, commands }) {
  const input = useRef();
  const dialog = useModal(onClose);
  const [query, setQuery] = useState('');
  const [at, setAt] = useState(0);
  const [named, setNamed] = useState([]);
  const servers = useApi(FLEET).data?.servers.name ?? [];
  const incidents = useApi('incidents').data?.items ?? [];
  useEffect(() => { input.current.focus(); }, []);

  const pool = useMemo(() => [
    ...commands,
    ...incidents.map((i) => ({ group: 'pal.incident', text: `${i.id}  ${summaryOf(i)}`, run: () => go(`incidents/${i.id}`) })),
    ...servers.map((id) => ({ group: 'pal.server', text: id, run: () => go(`servers/${id}`) })),
  ], [commands, incidents, servers]);
  useEffect(() => { // what is no name may be a serial number, a UUID or an address
    const text = query.trim();
    let wanted = true;
    setNamed([]);
    const timer = IDENTITY.test(text) && setTimeout(() => ask(`resources?limit=${SHOWN}&find=${encodeURIComponent(text)}`).then(({ items }) => { if (wanted) setNamed(items.map((r) => r.name)); }, () => {}), PAUSE_MS);
    return () => { wanted = false; clearTimeout(timer); };
  }, [query]);
  const found = useMemo(() => {
    if (!query) return pool.slice(0, SHOWN);
    const scored = [];
    for (const item of pool) {
      const cost = match(query, item.text);
      if (cost !== null) scored.push([cost, item]);
    }
    const byName = scored.sort((a, b) => a[0] - b[0]).map(([, item]) => item);
    const others = named.filter((text) => !byName.some((item) => item.text === text));
    return [...others.map((text) => ({ group: 'pal.resource', text, run: () => go(pageOf(text)) })), ...byName].slice(0, SHOWN);
  }, [pool, query, named]);

  const run = (item) => { onClose(); item?.run(); };
  const move = (by) => setAt((i) => (i + by + found.length) % Math.max(1, found.length));
  useKeys({ modal: true, Escape: onClose });
  const onKey = (event) => {
    const actions = { ArrowDown: () => move(1), ArrowUp: () => move(-1), Enter: () => run(found[at]) };
    if (actions[event.key] && !event.isComposing) { event.preventDefault(); actions[event.key](); }
  };
  return html`<dialog class="palette" ref=${dialog} onClick=${(e) => e.target === dialog.current && onClose()} aria-label=${t('shell.find')}>
    <input ref=${input} value=${query} placeholder=${t('pal.placeholder')} aria-label=${t('pal.placeholder')} role="combobox" aria-expanded="true" aria-controls="pal-list" aria-activedescendant=${found.length ? `pal-${at}` : undefined} onInput=${(e) => { setQuery(e.target.value); setAt(0); }} onKeyDown=${onKey} />
    <ul id="pal-list" role="listbox" aria-label=${t('shell.find')}>
      ${found.map((item, i) => html`<li id=${`pal-${i}`} role="option" aria-selected=${i === at ? 'true' : 'false'} class=${cls(i === at && 'on')} onMouseMove=${() => setAt(i)} onClick=${() => run(item)}><span>${item.text}</span><small>${item.keys ? html`<kbd>${item.keys}</kbd>` : t(item.group)}</small></li>`)}
    </ul>
    ${found.length === 0 && html`<p class="dim">${t('pal.none')}</p>`}
  </dialog>`;
}
