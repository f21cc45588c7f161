// Who are you? The address that the server printed logs in by itself; this page is for everybody else.
import { html, useState } from '../lib/html.js';
import { login, loginFailure, loginPath, useApi } from '../lib/api.js';
import { t } from '../lib/i18n.js';
import { Mark } from '../parts/bits.js';
import { Panel } from '../parts/panel.js';

const WAIT_MS = 5000; // until the login service is looked for again

/** The way through the login service, where there is one. */
function Service() {
  const service = useApi('login-methods', { every: WAIT_MS }).data?.oidc;
  const failure = loginFailure();
  return html`${failure && html`<p class="c-critical" role="alert">${t(`login.error.${failure}`)}</p>`}
    ${service && (service.ready
    ? html`<p><a class="btn primary" href=${loginPath()} target="_self">${t('login.with', { name: service.name })}</a></p>`
    : html`<p class="c-warning" role="status">${t('login.away', { name: service.name })}</p>`)}`;
}

export function LoginPage() {
  const [secret, setSecret] = useState('');
  const [failed, setFailed] = useState(null);
  const [busy, setBusy] = useState(false);
  const enter = async (event) => {
    event.preventDefault();
    const text = secret.trim();
    const code = /#login=([\w-]+)$/.exec(text)?.[1];
    setBusy(true);
    try {
      await login(code ? { code } : { code: text }).catch((error) => { if (code || error.status !== 401) throw error; return login({ token: text }); });
    } catch (error) {
      setFailed(error);
    }
    setBusy(false);
  };
  return html`<div class="login"><p class="brand"><${Mark} /><span>Auspex</span></p><${Panel} title=${t('login.title')} id="login">
    <${Service} />
    <p class="text-2">${t('login.hint')}</p>
    <form class="query" onSubmit=${enter}>
      <label class="sr" for="secret">${t('login.secret')}</label>
      <input id="secret" class="field mono" type="password" autocomplete="off" placeholder=${t('login.secret')} value=${secret} onInput=${(e) => setSecret(e.target.value)} />
      <button class="btn primary" disabled=${busy || !secret.trim()}>${t('login.enter')}</button>
    </form>
    ${failed && html`<p class="c-critical" role="alert">${failed.message} ${failed.hint}</p>`}
  <//></div>`;
}
