// Who are you? The address that the server printed logs in by itself; this page is for everybody else.
import { html, useState } from '../lib/html.js';
import { login } from '../lib/api.js';
import { t } from '../lib/i18n.js';
import { Mark } from '../parts/bits.js';
import { Panel } from '../parts/panel.js';

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
    <p class="text-2">${t('login.hint')}</p>
    <form class="query" onSubmit=${enter}>
      <label class="sr" for="secret">${t('login.secret')}</label>
      <input id="secret" class="field mono" type="password" autocomplete="off" placeholder=${t('login.secret')} value=${secret} onInput=${(e) => setSecret(e.target.value)} />
      <button class="btn primary" disabled=${busy || !secret.trim()}>${t('login.enter')}</button>
    </form>
    ${failed && html`<p class="c-critical" role="alert">${failed.message} ${failed.hint}</p>`}
  <//></div>`;
}
