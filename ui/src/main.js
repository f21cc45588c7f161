// The shell: bar, pages, palette, keys, and the one line that says when contact is lost.
import { html, render, useEffect, useMemo, useModal, useState } from './lib/html.js';
import { connect, loginFromAddress, post, useApi, useLink, useSession } from './lib/api.js';
import { useNow } from './lib/clock.js';
import { fmt, languages, loadLanguage, setLanguage, t, useLanguage } from './lib/i18n.js';
import { useKeys } from './lib/keys.js';
import { captureLinks, firstPart, go, href, useRoute } from './lib/router.js';
import { toggleTheme, useTheme } from './lib/theme.js';
import { Mark } from './parts/bits.js';
import { later } from './parts/later.js';
import { Palette } from './parts/palette.js';
import { FleetPage } from './pages/fleet.js';
import { IncidentPage } from './pages/incident.js';
import { IncidentsPage } from './pages/incidents.js';
import { LoginPage } from './pages/login.js';
import { PredictionsPage } from './pages/predictions.js';
import './style/tokens.css';
import './style/base.css';
import './style/parts.css';
import './style/pages.css';
import 'uplot/dist/uPlot.min.css';

const PAGES = [['fleet', 'f'], ['incidents', 'i'], ['predictions', 'p'], ['actions', 'a'], ['allocations', 'l'], ['inventory', 'v'], ['agents', 'n'], ['explore', 'e']];
const TABS = PAGES.filter(([name]) => name !== 'inventory' && name !== 'explore'); // on a phone

/** What nobody opens first comes later. */
const plotted = later(() => import('./pages/plotted.js'));
const managed = later(() => import('./pages/managed.js'));
const FILES = { servers: plotted, explore: plotted, actions: managed, allocations: managed, inventory: managed, agents: managed };
const IDLE_MS = 1000;

function page({ parts, query }) {
  const [name = 'fleet', id] = parts;
  if (name === 'fleet') return html`<${FleetPage} query=${query} />`;
  if (name === 'incidents') return id ? html`<${IncidentPage} key=${id} id=${id} />` : html`<${IncidentsPage} query=${query} />`;
  if (name === 'servers' && id) return html`<${plotted.Page} page="DevicePage" key=${id} id=${id} query=${query} />`;
  if (name === 'predictions') return html`<${PredictionsPage} />`;
  if (name === 'actions') return html`<${managed.Page} page="ActionsPage" key="actions" />`;
  if (name === 'allocations') return html`<${managed.Page} page="AllocationsPage" key="allocations" query=${query} />`;
  if (name === 'inventory') return html`<${managed.Page} page="InventoryPage" key="inventory" query=${query} />`;
  if (name === 'agents') return html`<${managed.Page} page="AgentsPage" key="agents" />`;
  if (name === 'explore') return html`<${plotted.Page} page="ExplorePage" key="explore" query=${query} />`;
  return html`<h1>${t('missing.title')}</h1><p>${t('missing.hint')}</p>`;
}

const ICONS = {
  fleet: 'M2 2h5v5H2zM9 2h5v5H9zM2 9h5v5H2zM9 9h5v5H9z', incidents: 'M8 1.5 14.5 8 8 14.5 1.5 8Z', predictions: 'M1.5 11C5 11 6 4 14.5 3M9 3h5.5v5.5', actions: 'M3 2.5v11L13.5 8Z', allocations: 'M2 2h12v12H2zM2 8h12M8 8v6', inventory: 'M8 1.5 14 4.5v7L8 14.5 2 11.5v-7zM2 4.5l6 3 6-3M8 7.5v7', agents: 'M2 3h12v4H2zM2 9h12v4H2zM4.5 5h.01M4.5 11h.01',
};
const Icon = ({ name }) => html`<svg width="18" height="18" viewBox="0 0 16 16" aria-hidden="true"><path d=${ICONS[name]} fill="none" stroke="currentColor" stroke-width="1.5" stroke-linejoin="round" stroke-linecap="round" /></svg>`;

function LinkState() {
  const link = useLink();
  return html`<span class=${`link is-${link.state}`} role="status"><i aria-hidden="true"></i><span>${t(`shell.${link.state}`)}</span></span>`;
}

function LostBar() {
  const link = useLink();
  useNow(1000);
  if (link.state !== 'lost') return null;
  return html`<p class="lost" role="alert">${t('shell.lost_text', { for: fmt.dur((Date.now() - link.last) / 1000) })}</p>`;
}

const API = 'docs/api'; // a page of the server, not of the console: opened, not routed to

function KeysHelp({ onClose }) {
  const dialog = useModal(onClose);
  useKeys({ modal: true, Escape: onClose, '?': onClose });
  const rows = [['/', 'keys.find'], ['j k', 'keys.move'], ['Enter', 'keys.open'], ['u', 'keys.back'], ['n p', 'keys.problem'], ['+ − 0', 'keys.zoom'], ['a', 'keys.approve'], ['d', 'keys.dry'], ['e', 'keys.evidence'], ['?', 'keys.this'], ...PAGES.map(([name, key]) => [`g ${key}`, `nav.${name}`])];
  return html`<dialog class="ask" ref=${dialog} aria-labelledby="keys-title"><h2 id="keys-title">${t('keys.title')}</h2><dl class="keys">${rows.map(([keys, text]) => html`<dt>${keys.split(' ').map((k) => html`<kbd>${k}</kbd>`)}</dt><dd>${t(text)}</dd>`)}</dl><footer><a class="btn" href=${href(API)} target="_self">${t('pal.api')}</a><button class="btn" onClick=${onClose} autofocus>${t('close')}</button></footer></dialog>`;
}

function App() {
  const route = useRoute();
  const language = useLanguage();
  const theme = useTheme();
  const [over, setOver] = useState(null); // 'palette' or 'keys'
  const me = useApi('me').data;
  const waiting = useApi('actions?state=waiting&limit=100').data?.items.length ?? 0;
  const inside = useSession();
  const open = (useApi('incidents').data?.items ?? []).filter((i) => i.status === 'open').length;
  const otherLanguage = languages.find(([code]) => code !== language);
  const commands = useMemo(() => [
    ...PAGES.map(([name, key]) => ({ group: 'pal.go', text: t(`nav.${name}`), keys: `g ${key}`, run: () => go(name) })),
    { group: 'pal.command', text: t('pal.theme'), run: toggleTheme },
    { group: 'pal.command', text: t('login.out'), run: () => post('logout').finally(() => location.reload()) },
    { group: 'pal.go', text: t('pal.api'), run: () => location.assign(href(API)) },
    { group: 'pal.command', text: t('pal.language'), run: () => setLanguage(otherLanguage[0]) },
  ], [language]);
  const palette = () => setOver('palette');
  useKeys({ '/': palette, 'mod+k': palette, '?': () => setOver('keys'), u: () => history.back(), ...Object.fromEntries(PAGES.map(([name, key]) => [`g ${key}`, () => go(name)])) });
  const current = route.parts[0] === 'servers' && route.parts[1] ? 'fleet' : route.parts[0] ?? 'fleet';
  const title = PAGES.some(([name]) => name === current) ? `nav.${current}` : 'missing.title';
  useEffect(() => { document.title = `${open ? `(${open}) ` : ''}${t(title)} · Auspex`; }, [title, open, language]);

  if (!inside) return html`<main id="main" tabindex="-1"><${LoginPage} /></main>`;
  const count = { incidents: open, actions: waiting };
  const tab = ([name]) => html`<a href=${href(name)} class=${current === name ? 'on' : ''} aria-current=${current === name ? 'page' : undefined}>${t(`nav.${name}`)}${count[name] > 0 && html`<b class=${`badge ${name}`}>${count[name]}</b>`}</a>`;
  return html`
    <a class="skip" href="#main" onClick=${(e) => { e.preventDefault(); document.getElementById('main').focus(); }}>${t('nav.skip')}</a>
    <header class="topbar">
      <a class="brand" href=${href('fleet')} aria-label="Auspex"><${Mark} /><span>Auspex</span></a>
      <nav aria-label=${t('nav.label')}>${PAGES.map(tab)}</nav>
      <button class="finder" onClick=${palette}><span>${t('shell.find')}</span><kbd>/</kbd></button>
      ${me && html`<span class="mode" title=${t(`mode.${me.mode}.tip`)}>${t('mode.label')} <b>${t(`mode.${me.mode}`)}</b></span>`}
      <${LinkState} />
      <button class="icon" onClick=${() => setLanguage(otherLanguage[0])} aria-label=${`${t('shell.language')}: ${otherLanguage[1]}`} lang=${otherLanguage[0]}>${otherLanguage[0] === 'zh' ? html`<svg width="16" height="16" viewBox="0 0 16 16" aria-hidden="true"><path d="M2.5 4.5h11v5.2h-11zM8 1.2v13.6" fill="none" stroke="currentColor" stroke-width="1.6" /></svg>` : 'EN'}</button>
      <button class="icon" onClick=${toggleTheme} aria-label=${t('shell.theme')}><svg width="16" height="16" viewBox="0 0 16 16" aria-hidden="true"><circle cx="8" cy="8" r="6" fill="none" stroke="currentColor" stroke-width="1.5" /><path d="M8 2a6 6 0 0 1 0 12Z" fill="currentColor" /></svg></button>
      <button class="icon wide-only" onClick=${() => setOver('keys')} aria-label=${t('shell.keys')}>?</button>
    </header>
    <${LostBar} />
    <main id="main" tabindex="-1">${page(route)}</main>
    <nav class="tabs" aria-label=${t('nav.label')}>${TABS.map(([name]) => html`<a href=${href(name)} class=${current === name ? 'on' : ''} aria-current=${current === name ? 'page' : undefined}><${Icon} name=${name} /><span>${t(`nav.${name}`)}</span>${count[name] > 0 && html`<b class=${`badge ${name}`}>${count[name]}</b>`}</a>`)}</nav>
    ${over === 'palette' && html`<${Palette} onClose=${() => setOver(null)} commands=${commands} />`}
    ${over === 'keys' && html`<${KeysHelp} onClose=${() => setOver(null)} />`}`;
}

/** The rest of the console, once a page is there and the browser has nothing to do: it is opened without contact too. */
function rest() {
  const next = () => plotted.load().then(managed.load);
  setTimeout(() => (window.requestIdleCallback ? requestIdleCallback(next) : next()), IDLE_MS);
}

captureLinks();
Promise.all([loadLanguage(), loginFromAddress(), FILES[firstPart()]?.load()]).then(() => {
  connect();
  render(html`<${App} />`, document.getElementById('app'));
  rest();
});
