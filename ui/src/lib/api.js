// Requests, a cache of their answers, and the live stream that refreshes them.
// A page never loses what it shows: when a refresh fails, the old answer stays and is marked stale.
import { useEffect, useReducer, useState } from 'preact/hooks';
import { clock } from './clock.js';

const root = new URL('api/v1/', document.baseURI);
const QUIET_MS = 8000; // the server sends something every 2 s
const RETRY_MS = 3000;
const HIDDEN_MS = 30_000;

/** A failure with what RFC 9457 says about it. */
export class ApiError extends Error {
  constructor(status, body) {
    super(body?.detail ?? `HTTP ${status}`);
    this.status = status;
    this.hint = body?.hint;
    this.body = body ?? {};
  }
}

/** The whole fleet; the ids of its parts, most of the bytes, are nothing that a page shows. */
export const FLEET = 'fleet?ids=false';

/** One answer, past the cache: for what is asked once. */
export const ask = (path) => request(path);

async function request(path, options) {
  const response = await fetch(new URL(path, root), { headers: { accept: 'application/json' }, ...options });
  const body = await response.json().catch(() => null);
  if ((response.status === 401 || body?.code === 'too_many_failures') && path !== 'login') setSession(false);
  if (!response.ok) throw new ApiError(response.status, body);
  return body;
}

// ── session ──────────────────────────────────────────────────────────────────────────────────────────────

const session = { in: true, listeners: new Set() };

function setSession(value) {
  if (session.in === value) return;
  session.in = value;
  for (const listener of session.listeners) listener(value);
}

/** Whether somebody is logged in, as far as the last answer says. */
export function useSession() {
  const [value, setValue] = useState(session.in);
  useEffect(() => {
    session.listeners.add(setValue);
    return () => session.listeners.delete(setValue);
  }, []);
  return value;
}

/** Exchanges a one-time code or a token for a session, and loads what failed without one. */
export async function login(credential) {
  await post('login', credential);
  setSession(true);
  for (const [path, item] of cache) if (item.listeners.size) load(path);
  listen();
}

const FAILURES = ['away', 'refused', 'state', 'token', 'no_role', 'no_name', 'inactive', 'other_user'];
let failure = null;

/** Why the login service has let nobody in, if it was asked. */
export const loginFailure = () => failure;

/** Where a login by the login service begins; it ends on this page. */
export const loginPath = () => new URL(`oidc/login?return=${encodeURIComponent(location.pathname + location.search)}`, root).href;

/** Takes the code of the address that the server printed. The fragment leaves the address bar and the history at once. */
export async function loginFromAddress() {
  const error = /^#login-error=(\w+)$/.exec(location.hash)?.[1];
  if (error) {
    failure = FAILURES.includes(error) ? error : 'refused';
    history.replaceState(null, '', location.pathname + location.search);
  }
  const code = /^#login=([\w-]+)$/.exec(location.hash)?.[1];
  if (!code) return;
  history.replaceState(null, '', location.pathname + location.search);
  await post('login', { code }).catch(() => {}); // a code that was used already may still leave a session
}

const write = (method, path, body, headers) => request(path, { method, body: JSON.stringify(body ?? {}), headers: { 'content-type': 'application/json', ...headers } });

/** Writes carry a key, so that what is sent twice happens once. */
export const post = (path, body, key = newKey()) => write('POST', path, body, { 'idempotency-key': key });

/** A POST that changes nothing. */
export const tryOut = (path, body) => write('POST', path, body);

export const put = (path, body) => write('PUT', path, body);

export const remove = (path) => request(path, { method: 'DELETE' });

/** 128 random bits; crypto.randomUUID is not there on plain HTTP beyond loopback. */
export const newKey = () => [...crypto.getRandomValues(new Uint8Array(16))].map((b) => b.toString(16).padStart(2, '0')).join('');

const cache = new Map(); // path → { data, error, at, old, pending, listeners }

function entry(path) {
  if (!cache.has(path)) cache.set(path, { data: undefined, error: null, at: 0, old: false, pending: null, listeners: new Set() });
  return cache.get(path);
}

function load(path, again = false) {
  const item = entry(path);
  if (item.pending) {
    item.again ||= again; // what is on its way may be from before the change
    return item.pending;
  }
  item.pending = request(path)
    .then((data) => Object.assign(item, { data, error: null, at: Date.now(), old: false }), (error) => Object.assign(item, { error }))
    .then(() => {
      item.pending = null;
      for (const listener of item.listeners) listener();
      if (item.again) { item.again = false; load(path); }
    });
  return item.pending;
}

/**
 * The answer of GET path: { data, error, stale, reload }. Pass null to ask for nothing. What came while nobody
 * looked is fetched again; `every` asks again in that many milliseconds, for what no event announces.
 */
export function useApi(path, { every = 0 } = {}) {
  const [, redraw] = useReducer((n) => n + 1, 0);
  useEffect(() => {
    if (!path) return undefined;
    const item = entry(path);
    item.listeners.add(redraw);
    if (item.data === undefined || item.error || item.old || (every && Date.now() - item.at > every)) load(path);
    const timer = every && setInterval(() => { if (!document.hidden) load(path); }, every);
    return () => { item.listeners.delete(redraw); clearInterval(timer); };
  }, [path, every]);
  const item = path ? entry(path) : { data: undefined, error: null };
  return { data: item.data, error: item.error, stale: Boolean(item.error && item.data), reload: () => load(path) };
}

const PAUSE_MS = 250; // between the last change and the question

/**
 * The answer of a POST that changes nothing, asked anew when its body changes: { answer, error, asked, asking }. Of several on their way
 * the last question's counts. A body of null asks nothing.
 */
export function useTry(path, body) {
  const [state, setState] = useState({ asking: true });
  const question = body ? JSON.stringify(body) : '';
  useEffect(() => {
    if (!question) { setState({}); return undefined; }
    let wanted = true;
    const take = (next) => { if (wanted) setState(next); };
    setState((was) => ({ ...was, asking: true }));
    const timer = setTimeout(() => tryOut(path, body).then((answer) => take({ answer, asked: body }), (error) => take({ error, asked: body })), PAUSE_MS);
    return () => { wanted = false; clearTimeout(timer); };
  }, [path, question]);
  return state;
}

// ── live stream ──────────────────────────────────────────────────────────────────────────────────────────

const handlers = new Map(); // event → set of functions
const link = { state: 'connecting', since: Date.now(), last: Date.now(), listeners: new Set() };

function setLink(state) {
  if (link.state === state) return;
  Object.assign(link, { state, since: Date.now() });
  for (const listener of link.listeners) listener();
}

/** Calls fn with the data of each live event of that name. */
export function useStream(event, fn) {
  useEffect(() => {
    const set = handlers.get(event) ?? handlers.set(event, new Set()).get(event);
    set.add(fn);
    return () => set.delete(fn);
  }, [event, fn]);
}

/** The state of the stream now. */
export const contact = () => link.state;

/** State of the stream: 'connecting', 'live' or 'lost', and since when. */
export function useLink() {
  const [, redraw] = useState(0);
  useEffect(() => {
    const listener = () => redraw((n) => n + 1);
    link.listeners.add(listener);
    return () => link.listeners.delete(listener);
  }, []);
  return link;
}

/**
 * Opens the stream; call once. EventSource reconnects by itself after a broken connection and sends
 * Last-Event-ID, but gives up for ever after an answer such as 502, so then a new one is made.
 */
export function connect() {
  setInterval(() => { if (source && Date.now() - link.last > QUIET_MS) setLink('lost'); }, 1000);
  addEventListener('pagehide', hush);
  addEventListener('pageshow', (event) => { if (event.persisted) wake(); });
  document.addEventListener('visibilitychange', () => {
    clearTimeout(asleep);
    if (!document.hidden) wake();
    else asleep = setTimeout(hush, HIDDEN_MS);
  });
  listen();
}

let asleep = 0;

/**
 * A page that nobody sees gives its stream back: a browser has six connections for all tabs of a server (HTTP/1.1),
 * and pages kept for the back button count too.
 */
function hush() {
  clearTimeout(retry);
  source?.close();
  source = null;
}

function wake() {
  if (source || !session.in) return;
  setLink('connecting');
  link.last = Date.now();
  refresh(['']);
  listen();
}

let source = null;
let retry = 0;

function listen() {
  clearTimeout(retry);
  source?.close();
  source = new EventSource(new URL('stream', root));
  const mine = source;
  const heard = () => { link.last = Date.now(); };
  source.addEventListener('open', () => {
    heard();
    if (link.state === 'lost') for (const [path, item] of cache) if (item.listeners.size) load(path);
    setLink('live');
  });
  source.addEventListener('error', () => {
    if (Date.now() - link.last > QUIET_MS / 4) setLink('lost');
    if (mine === source && mine.readyState === EventSource.CLOSED && session.in) retry = setTimeout(listen, RETRY_MS * (0.5 + Math.random()));
  });
  for (const event of ['hello', 'tick', 'servers', 'changed']) {
    source.addEventListener(event, (message) => {
      heard();
      setLink('live');
      const data = JSON.parse(message.data);
      if (data.time) clock.set(data.time);
      if (event === 'changed') refresh(data.topics);
      if (event === 'servers' && !handlers.get(event)?.size) entry(FLEET).old = true; // no map is there to take it
      for (const handler of handlers.get(event) ?? []) handler(data);
    });
  }
}

/** What follows from a topic, below another path. */
const FOLLOWS = { allocations: ['capacity'], workflows: ['allocations', 'capacity'], discoveries: ['conflicts'] };

/** Fetches again what is on screen of these topics, and marks the rest as old. */
export function refresh(changed) {
  const topics = changed.flatMap((topic) => [topic, ...(FOLLOWS[topic] ?? [])]);
  for (const [path, item] of cache) {
    if (!topics.some((topic) => path.startsWith(topic))) continue;
    if (item.listeners.size) load(path, true);
    else item.old = true;
  }
}
