// Which template a server is installed with, in which version, and what that asks for.
import { html } from '../lib/html.js';
import { useApi } from '../lib/api.js';
import { t } from '../lib/i18n.js';

const MOST = 1000;
const path = (ref, version) => `templates/${encodeURIComponent(ref)}${version ? `?version=${version}` : ''}`;

/** What has to be said: the parameters that are required and have no default. */
const needed = (schema) => (schema?.required ?? []).filter((key) => schema.properties?.[key]?.default === undefined);

/** A value as its schema has it; what cannot be read is sent as it was written, and the server says what is wrong with it. */
function read(text, type) {
  if (type === 'string' || type === undefined) return text;
  try { return JSON.parse(text); } catch { return text; }
}

/** What of a request says how servers are installed; nothing where no template is chosen. */
export const installOf = ({ template, version, parameters }) => (template ? {
  template, ...(version && { template_version: Number(version) }), ...(Object.keys(parameters).length > 0 && { parameters }),
} : {});

/** Which of its parameters a refusal asks for that nobody has said yet. */
export const unsaid = (error, { parameters }) => (error?.body?.errors ?? []).map((e) => e.field).filter((f) => f?.startsWith('parameters.')).map((f) => f.slice(11)).filter((key) => parameters[key] === undefined);

export const NO_TEMPLATE = { template: '', version: '', parameters: {} };

/** The fields; nothing where there are no templates. `none` says what is done without one. */
export function Template({ id, value, none, onChange }) {
  const all = useApi(`templates?status=active&limit=${MOST}`).data?.items ?? [];
  const chosen = all.find((v) => v.name === value.template);
  const schema = useApi(chosen ? path(chosen.id, value.version) : null).data?.parameters;
  if (all.length === 0) return null;
  const older = chosen ? Array.from({ length: chosen.version - 1 }, (_, k) => String(chosen.version - 1 - k)) : [];
  const give = (key, text) => {
    const { [key]: was, ...rest } = value.parameters;
    onChange({ ...value, parameters: text === '' ? rest : { ...rest, [key]: read(text, schema.properties[key]?.type) } });
  };
  const said = (v) => (v === undefined ? '' : typeof v === 'string' ? v : JSON.stringify(v));
  return html`<div class=${chosen ? 'halves' : 'form'}>
      <div><label for=${id}>${t('tpl.title')}</label><select id=${id} class="field" value=${value.template} onChange=${(e) => onChange({ ...NO_TEMPLATE, template: e.target.value })}><option value="">${none}</option>${all.map((v) => html`<option value=${v.name} selected=${v.name === value.template}>${v.name}</option>`)}</select></div>
      ${chosen && html`<div><label for=${`${id}-version`}>${t('tpl.version')}</label><select id=${`${id}-version`} class="field num" value=${value.version} onChange=${(e) => onChange({ ...value, version: e.target.value, parameters: {} })}><option value="">${t('tpl.latest', { n: chosen.version })}</option>${older.map((n) => html`<option value=${n} selected=${n === value.version}>${n}</option>`)}</select></div>`}
    </div>
    ${chosen?.description && html`<p class="dim">${chosen.description}</p>`}
    ${chosen && needed(schema).map((key) => html`<label class="mono" for=${`${id}-${key}`}>${key}</label><input id=${`${id}-${key}`} class="field mono" required spellcheck="false" autocomplete="off" placeholder=${schema.properties?.[key]?.examples?.[0] ?? ''} title=${schema.properties?.[key]?.description} value=${said(value.parameters[key])} onInput=${(e) => give(key, e.target.value)} />`)}`;
}
