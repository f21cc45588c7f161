// Pages that come in files of their own, when one of them is opened or once the first page is drawn.
import { html, useEffect, useReducer } from '../lib/html.js';
import { contact } from '../lib/api.js';
import { t } from '../lib/i18n.js';
import { Note } from './panel.js';

/** A file of pages: `load` fetches it once, and again after it could not; `Page` draws the page of a name. */
export function later(fetchFile) {
  const file = { pages: null, failed: false, pending: null };
  const load = () => {
    file.pending ??= fetchFile().then((pages) => { file.pages = pages; }, () => { file.pending = null; file.failed = true; });
    return file.pending;
  };
  function Page({ page, ...rest }) {
    const [, redraw] = useReducer((n) => n + 1, 0);
    const fetchAgain = () => { file.failed = false; redraw(); load().then(redraw); };
    useEffect(() => { if (!file.pages) fetchAgain(); }, []);
    if (file.pages) return html`<${file.pages[page]} ...${rest} />`;
    // A server that answers has another version by now, or the browser has kept the failure: the whole page is loaded again.
    const again = () => (contact() === 'live' ? location.reload() : fetchAgain());
    if (file.failed) return html`<${Note} tone="bad" title=${t('load.page')} hint=${t('load.page_hint')} action=${html`<button class="btn" onClick=${again}>${t('load.retry')}</button>`} />`;
    return html`<div class="skeleton" style=${{ height: '500px' }} aria-busy="true"><span class="sr">${t('load.wait')}</span></div>`;
  }
  return { load, Page };
}
