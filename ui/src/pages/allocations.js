// Who has what, is something stranded, and what can be had?
import { html, useEffect, useRef, useState } from '../lib/html.js';
import { refresh, useApi } from '../lib/api.js';
import { useNow } from '../lib/clock.js';
import { t } from '../lib/i18n.js';
import { Allocate } from '../parts/allocate.js';
import { Ended, Live } from '../parts/allocated.js';
import { Capacity, total } from '../parts/capacity.js';
import { useMay } from '../parts/ladder.js';
import { Await } from '../parts/panel.js';
import { TenantMap } from '../parts/tenants.js';
import { Told } from '../parts/told.js';

const LIVE = 'allocations?live=true&limit=1000';
const EVERY_MS = 10_000; // what makes allocations ready tells no console
const PENDING_MS = 3000;

/** Members of a team see what they and their teams have; who may manage users, and who is of no team, sees all. */
const seesAll = (me) => !me?.user || me.user.teams.length === 0 || me.permissions.includes('users');

function Headline({ items, more, capacity, me, onAsk, told }) {
  const denied = useMay('allocate');
  const sum = total(capacity.pools);
  const now = items.filter((a) => !a.booked);
  const said = { n: now.length, more, later: items.length - now.length, own: now.reduce((n, a) => n + a.gpu_ids.length, 0), ...sum };
  return html`<header class="headline"><div><h1>${t(sum.gpus === 0 ? 'alo.nothing_there' : seesAll(me) ? 'alo.headline' : 'alo.headline_own', said)}</h1>
      ${items.length === 0 && sum.gpus > 0 && html`<p class="dim">${t('alo.how_to_ask')}</p>`}
      ${told && html`<p class="feedback" role="status">${told}</p>`}</div>
    <div class="ask-for"><button class="btn primary" disabled=${Boolean(denied)} title=${denied ?? undefined} onClick=${onAsk}>${t('alo.ask')}</button>${denied && html`<p class="dim">${denied}</p>`}</div></header>`;
}

export function AllocationsPage() {
  const capacity = useApi('capacity', { every: EVERY_MS });
  const [every, setEvery] = useState(EVERY_MS);
  const live = useApi(LIVE, { every });
  const me = useApi('me').data;
  const [asking, setAsking] = useState(false);
  const [told, setTold] = useState('');
  useNow(PENDING_MS);
  const now = live.data?.items.map((a) => a.id).join();
  const before = useRef(now);
  useEffect(() => { // one that has left this list is in the other
    if (before.current !== undefined && before.current !== now) refresh(['allocations?ended']);
    before.current = now;
  }, [now]);
  const wanted = live.data?.items.some((a) => a.status === 'pending' && !a.booked) ? PENDING_MS : EVERY_MS;
  if (wanted !== every) setEvery(wanted);
  return html`<${Await} of=${live} height=${400}>${({ items, next }) => html`<${Await} of=${capacity} height=${400}>${(c) => html`
    <${Headline} items=${items} more=${Boolean(next)} capacity=${c} me=${me} told=${told} onAsk=${() => { setTold(''); setAsking(true); }} />
    <div class="allocations-grid">
      <div class="column"><${Live} items=${items} next=${next} /><${TenantMap} items=${items} /><${Ended} /></div>
      <div class="column"><${Told} /><${Capacity} capacity=${c} /></div>
    </div>
    ${asking && html`<${Allocate} pools=${c.pools} onClose=${() => setAsking(false)} onDone=${(text) => { setAsking(false); setTold(text); }} />`}`}<//>`}<//>`;
}
