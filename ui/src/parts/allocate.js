// The request: what is wanted, and beside it what would be given for it, before anything is.
import { html, useModal, useRef, useState } from '../lib/html.js';
import { newKey, post, useApi, useTry } from '../lib/api.js';
import { clock } from '../lib/clock.js';
import { fmt, t } from '../lib/i18n.js';
import { useKeys } from '../lib/keys.js';
import { Segments } from './bits.js';
import { Choice } from './choice.js';
import { NO_TEMPLATE, Template, installOf, unsaid } from './template.js';

const LASTS = [14_400, 86_400, 259_200, 604_800, 2_592_000, 0];
const RISKS = ['', '0.5', '0.1', '0.01'];
const TOGETHER = ['', 'rack', 'rail', 'nvlink'];
const SPREAD = ['', 'feeds', 'racks'];
const USERS = 200;

/** The body of a request. */
function bodyOf(f, now = clock.now()) {
  const wish = { [f.of]: Number(f.count) };
  for (const key of ['model', 'pool', 'together', 'spread']) if (f[key]) wish[key] = f[key];
  if (f.risk) wish.max_risk = Number(f.risk);
  return {
    wish, ...(f.of === 'servers' && installOf(f.install)), ...(f.purpose && { purpose: f.purpose }), ...(f.user && { user_id: f.user }), ...(f.team && { team: f.team }),
    ...(f.lasts > 0 && { end_time: new Date(now + f.lasts * 1000).toISOString() }),
  };
}

function Select({ id, value, options, onChange }) {
  return html`<select id=${id} class="field" value=${value} onChange=${(e) => onChange(e.target.value)}>${options.map(([key, text]) => html`<option value=${key} selected=${key === value}>${text}</option>`)}</select>`;
}

export function Allocate({ pools, onClose, onDone }) {
  const dialog = useModal(onClose);
  const me = useApi('me').data;
  const others = me?.permissions.includes('users');
  const users = useApi(others ? `users?status=active&limit=${USERS}` : null).data?.items ?? [];
  const [form, setForm] = useState({ of: 'servers', count: '1', model: '', pool: '', together: '', spread: '', risk: '', lasts: 86_400, purpose: '', user: '', team: '', install: NO_TEMPLATE });
  const [error, setError] = useState(null);
  const [busy, setBusy] = useState(false);
  const key = useRef(null);
  const now = useRef(clock.now()).current; // of the questions: time alone asks nothing anew
  const set = (change) => { setError(null); setForm((was) => ({ ...was, ...change })); };
  const teams = (form.user ? users.find((u) => u.username === form.user)?.teams : me?.user?.teams) ?? [];
  const lacks = !me || !(Number(form.count) >= 1) ? 'alo.say_how_many' : !form.user && !me.user ? 'alo.say_whom' : teams.length > 1 && !form.team ? 'alo.say_team' : null;
  const { asking, answer, error: refused, asked } = useTry('allocations?dry_run=true', lacks ? null : bodyOf({ ...form, purpose: '' }, now)); // its words decide nothing
  const unfilled = unsaid(refused, form.install);
  const choice = answer ?? refused?.body?.choice;
  const found = { choice, whole: Boolean(asked?.wish.servers), none: !answer };
  useKeys({ modal: true, Escape: onClose });
  const typed = (field) => (e) => set({ [field]: e.target.value });
  const send = (event) => {
    event.preventDefault();
    if (key.current) return;
    key.current = newKey();
    setBusy(true);
    post('allocations', bodyOf(form), key.current).then((made) => onDone(t('alo.given_to', { servers: made.allocation.servers.length, gpus: made.allocation.gpu_ids.length, who: made.allocation.team || made.allocation.user })), (failure) => { key.current = null; setBusy(false); setError(failure); });
  };
  const words = (kind, keys) => keys.map((k) => [k, t(`alo.${kind}.${k || 'any'}`)]);
  return html`<dialog class="ask wide" ref=${dialog} aria-labelledby="alo-form-title"><form onSubmit=${send}>
    <h2 id="alo-form-title">${t('alo.ask')}</h2>
    <div class="request"><div class="form">
      <${Segments} label=${t('alo.what')} value=${form.of} options=${[['servers', t('alo.of.servers')], ['gpus', t('alo.of.gpus')]]} onChange=${(of) => set({ of })} />
      <label for="alo-count">${t('alo.how_many')}</label><input id="alo-count" class="field num" type="number" autofocus min="1" max=${form.of === 'servers' ? 4096 : 32_768} required value=${form.count} onInput=${typed('count')} />
      <label for="alo-lasts">${t('alo.how_long')}</label><${Select} id="alo-lasts" value=${form.lasts} options=${LASTS.map((s) => [s, s ? fmt.dur(s) : t('alo.open_end')])} onChange=${(v) => set({ lasts: Number(v) })} />
      <label for="alo-purpose">${t('alo.purpose')}</label><input id="alo-purpose" class="field" maxlength="500" value=${form.purpose} onInput=${typed('purpose')} />
      ${(others || !me?.user) && html`<label for="alo-user">${t(me?.user ? 'alo.for_other' : 'alo.for_user')}</label><input id="alo-user" class="field" list="alo-users" required=${!me?.user} maxlength="64" spellcheck="false" autocomplete="off" value=${form.user} onInput=${typed('user')} /><datalist id="alo-users">${users.map((u) => html`<option value=${u.username} />`)}</datalist>`}
      ${teams.length > 1 && html`<label for="alo-team">${t('alo.team')}</label><${Select} id="alo-team" value=${form.team} options=${[['', t('cor.choose')], ...teams.map((n) => [n, n])]} onChange=${(team) => set({ team })} />`}
      <div class="halves">
        <div><label for="alo-model">${t('alo.model')}</label><input id="alo-model" class="field" maxlength="100" spellcheck="false" placeholder=${t('alo.model_hint')} value=${form.model} onInput=${typed('model')} /></div>
        <div><label for="alo-pool">${t('alo.pool')}</label><${Select} id="alo-pool" value=${form.pool} options=${[['', t('alo.any')], ...pools.map((p) => [p.pool, p.pool])]} onChange=${(pool) => set({ pool })} /></div>
        <div><label for="alo-together">${t('alo.together_in')}</label><${Select} id="alo-together" value=${form.together} options=${words('together', TOGETHER)} onChange=${(together) => set({ together })} /></div>
        <div><label for="alo-spread">${t('alo.spread_over')}</label><${Select} id="alo-spread" value=${form.spread} options=${words('spread', SPREAD)} onChange=${(spread) => set({ spread })} /></div>
      </div>
      ${form.of === 'servers' && html`<${Template} id="alo-template" value=${form.install} none=${t('alo.no_template')} onChange=${(install) => set({ install })} />`}
      <label for="alo-risk">${t('alo.risk')}</label><${Select} id="alo-risk" value=${form.risk} options=${RISKS.map((r) => [r, r ? t('alo.below', { p: fmt.pct(Number(r)) }) : t('alo.any')])} onChange=${(risk) => set({ risk })} />
    </div>
    <section class="found" aria-live="polite" aria-busy=${asking ? 'true' : 'false'} aria-label=${t('alo.would')}>
      ${lacks ? html`<p class="dim">${t(lacks)}</p>` : unfilled.length > 0 ? html`<p class="dim">${t('tpl.say', { names: unfilled.join(t('fleet.comma')) })}</p>` : refused && !choice ? html`<p class="c-critical">${refused.message} ${refused.hint}</p>` : choice ? html`<${Choice} ...${found} />` : html`<p class="dim">${t('load.wait')}</p>`}
    </section></div>
    ${error && html`<p class="c-critical" role="alert">${error.message} ${error.hint}</p>`}
    <footer><button type="button" class="btn" onClick=${onClose}>${t('act.back')}</button><button class="btn primary" disabled=${busy || Boolean(lacks) || asking || !answer}>${t(`alo.allocate.${form.of}`, { n: Number(form.count) || 0 })}</button></footer>
  </form></dialog>`;
}
