// Lists that come in pages: each page asks for the one after it only when somebody wants to see it.
import { html, useState } from '../lib/html.js';
import { useApi } from '../lib/api.js';
import { t } from '../lib/i18n.js';
import { Await } from './panel.js';

/** Calls `children` with each page of GET path. The cursor of a page comes from the one before, so that none is lost when the first grows. */
export function Pages({ path, after, height, more: label = 'act.older', children }) {
  const answer = useApi(after ? `${path}&after=${encodeURIComponent(after)}` : path);
  const [more, setMore] = useState(false);
  return html`<${Await} of=${answer} height=${height}>${(data) => html`
    ${children(data, !after)}
    ${data.next && (more ? html`<${Pages} path=${path} after=${data.next} height=${height} more=${label}>${children}<//>` : html`<button class="btn small older" onClick=${() => setMore(true)}>${t(label)}</button>`)}`}<//>`;
}
