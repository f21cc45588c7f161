// What is there, in which state of its life, who changed it, and what two sources say differently?
import { html, useState } from '../lib/html.js';
import { useApi } from '../lib/api.js';
import { t } from '../lib/i18n.js';
import { Assets } from '../parts/assets.js';
import { Conflicts } from '../parts/conflicts.js';
import { Discovery } from '../parts/discovery.js';
import { Register, Servers } from '../parts/estate.js';
import { useMay } from '../parts/ladder.js';
import { Await } from '../parts/panel.js';

const WAITING = 'servers?status=discovered&limit=1000&fields=id,name';
const BROKEN = 'servers?status=error&limit=1000&fields=id';
const OPEN = 'conflicts?status=open&limit=1000&fields=id';

const count = (answer) => answer.data?.items.length ?? 0;

export function InventoryPage({ query }) {
  const pools = useApi('capacity');
  const waiting = useApi(WAITING);
  const broken = useApi(BROKEN);
  const open = useApi(OPEN);
  const denied = useMay('inventory');
  const [find, setFind] = useState(null); // what is registered: {} is by hand
  const [told, setTold] = useState('');
  const register = (what) => { setTold(''); setFind(what); };
  return html`<${Await} of=${pools} height=${400}>${(capacity) => html`
    <header class="headline"><div><h1>${t('inv.headline', { n: capacity.pools.reduce((n, p) => n + p.servers, 0), waiting: count(waiting), broken: count(broken), conflicts: count(open) })}</h1>
        ${told && html`<p class="feedback" role="status">${told}</p>`}</div>
      <div class="ask-for"><button class="btn primary" disabled=${Boolean(denied)} title=${denied ?? undefined} onClick=${() => register({})}>${t('inv.register')}</button>${denied && html`<p class="dim">${denied}</p>`}</div></header>
    <div class="allocations-grid">
      <div class="column"><${Servers} status=${query.get('status') ?? ''} /><${Assets} q=${query.get('q') ?? ''} kind=${query.get('kind') ?? ''} /></div>
      <div class="column"><${Conflicts} /><${Discovery} waiting=${new Set(waiting.data?.items.map((s) => s.name))} onRegister=${register} /></div>
    </div>
    ${find && html`<${Register} find=${find} onClose=${() => setFind(null)} onDone=${(server) => { setFind(null); setTold(t('inv.registered', { server: server.name })); }} />`}`}<//>`;
}
