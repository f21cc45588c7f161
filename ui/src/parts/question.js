// A question that sends something once its button is pressed.
import { html, useModal, useRef, useState } from '../lib/html.js';
import { t } from '../lib/i18n.js';
import { useKeys } from '../lib/keys.js';

/** `children` is what is asked, `send` what answers, unless it is `off`; a refusal stays on screen with what to do. */
export function Question({ title, id, button, off, send, onClose, onDone, children }) {
  const dialog = useModal(onClose);
  const [error, setError] = useState(null);
  const busy = useRef(false);
  useKeys({ modal: true, Escape: onClose });
  const go = (event) => {
    event.preventDefault();
    if (busy.current) return;
    busy.current = true;
    send().then(onDone, (failure) => { busy.current = false; setError(failure); });
  };
  return html`<dialog class="ask" ref=${dialog} aria-labelledby=${`${id}-title`}><form onSubmit=${go}><h2 id=${`${id}-title`}>${title}</h2>${children}
    ${error && html`<p class="c-critical" role="alert">${error.message} ${error.hint}</p>`}
    <footer><button type="button" class="btn" onClick=${onClose}>${t('act.back')}</button><button class="btn primary" disabled=${off}>${button}</button></footer></form></dialog>`;
}
