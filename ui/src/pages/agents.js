// Which servers does Auspex see from the inside, which not and since when, and who is let in?
import { html } from '../lib/html.js';
import { useApi } from '../lib/api.js';
import { clock, useNow } from '../lib/clock.js';
import { fmt, t } from '../lib/i18n.js';
import { href } from '../lib/router.js';
import { Enrolment, nameOf } from '../parts/enrolment.js';
import { Machines, Tokens } from '../parts/joining.js';
import { Pages } from '../parts/pages.js';
import { Await, Note, Panel } from '../parts/panel.js';
import { Shape } from '../parts/status.js';

const SHAPES = { lost: ['unknown', 'critical'], refuses: ['failed', 'warning'], unheard: ['later', 'out'], none: ['out', 'out'], answers: ['ok', 'ok'] };
const PAGE = 25;
const EVERY_MS = 15_000;

const Server = ({ id }) => html`<a class="mono" href=${href(`servers/${encodeURIComponent(id)}`)}>${id}</a>`;

const Since = ({ at }) => html`<span title=${`${fmt.stamp(Date.parse(at))} UTC`}><b class="num">${fmt.dur((clock.now() - Date.parse(at)) / 1000)}</b> <span class="dim num">${t('agt.from', { when: fmt.stamp(Date.parse(at)) })}</span></span>`;

function Row({ agent: a, since, version }) {
  const [kind, token] = SHAPES[a.state];
  return html`<tr><td><${Server} id=${a.server} /></td><td class="mono dim">${a.rack ?? ''}</td><td class=${`c-${token}`}><${Shape} kind=${kind} token=${token} size=${11} /> ${t(`agt.is.${a.state}`)}</td>
    ${since && html`<td>${a.since && html`<${Since} at=${a.since} />`}</td>`}<td class="mono">${a.dials_in ? html`<span class="dim">${t(a.address ? 'agt.dials' : 'agt.never')}</span> ${a.address ?? ''}` : a.address ?? ''}</td>${version && html`<td class="mono dim">${a.version ?? ''}</td>`}</tr>`;
}

/** A column stands where a server has something in it. */
function Rows({ items }) {
  const has = { since: items.some((a) => a.since), version: items.some((a) => a.version) };
  return html`<div class="scroll"><table class="table tight agents"><thead><tr><th>${t('agt.server')}</th><th>${t('agt.rack')}</th><th>${t('agt.state')}</th>${has.since && html`<th>${t('agt.since')}</th>`}<th>${t('agt.where')}</th>${has.version && html`<th>${t('agt.version')}</th>`}</tr></thead><tbody>${items.map((a) => html`<${Row} key=${a.server} agent=${a} ...${has} />`)}</tbody></table></div>`;
}

/** Servers of one state; said in a sentence where there are none. */
const Servers = ({ state, id, none, count }) => html`<${Panel} title=${t(`agt.${id}`)} id=${`agents-${id}`} flush aside=${count > 0 && html`<span class="dim num">${fmt.num(count)}</span>`}>
  ${count === 0 ? html`<${Note} title=${none} />` : html`<${Pages} path=${`agents?state=${state}&limit=${PAGE}`} height=${80} more="agt.more">${({ items }) => html`<${Rows} items=${items} />`}<//>`}<//>`;

/** What agents say that cannot be taken; nothing where all can. */
function Refused() {
  const { data } = useApi('refused-descriptions?limit=200', { every: EVERY_MS });
  const items = data?.items ?? [];
  const hosts = new Map((useApi('machines?limit=1000').data?.items ?? []).map((m) => [m.key, m.hostname]));
  if (items.length === 0) return null;
  return html`<${Panel} title=${t('agt.refused')} id="agents-refused" aside=${html`<span class="dim num">${items.length}</span>`}>
    <p class="text-2">${t('agt.refused_lead')}</p>
    <ul class="edges">${items.map((a) => html`<li class="edge"><p class="verdict"><${Shape} kind="failed" token="warning" size=${13} /> ${a.server ? html`<${Server} id=${a.server} />` : html`<b class="mono">${hosts.get(a.machine) || nameOf(a.machine)}</b> <span class="dim">${t('enr.lost')}</span>`}</p>
      <p>${a.refused}</p><p class="dim">${[a.address, a.version, t('agt.since_when', { age: fmt.dur((clock.now() - Date.parse(a.since)) / 1000), when: fmt.stamp(Date.parse(a.since)) })].filter(Boolean).join(' · ')}</p></li>`)}</ul><//>`;
}

export function AgentsPage() {
  const answer = useApi('agents?limit=1&state=away', { every: EVERY_MS });
  useNow(EVERY_MS);
  return html`<${Await} of=${answer} height=${500}>${({ counts: c }) => {
    const away = c.lost + c.refuses;
    const all = away + c.answers + c.unheard + c.none;
    return html`<h1>${t('agt.headline', { away, all, ...c })}</h1>
    <div class="actions-grid"><div class="column">
      ${all > c.none && html`<${Servers} key=${`away ${away}`} state="away" id="away" count=${away} none=${t('agt.all_answer')} />`}
      ${c.unheard > 0 && html`<${Servers} key=${`unheard ${c.unheard}`} state="unheard" id="unheard" count=${c.unheard} />`}
      <${Enrolment} />
      <${Refused} />
      <${Machines} />
      ${c.none > 0 && html`<${Servers} key=${`none ${c.none}`} state="none" id="none" count=${c.none} />`}
      ${c.answers > 0 && html`<${Servers} key=${`answers ${c.answers}`} state="answers" id="answers" count=${c.answers} />`}
    </div><div class="column"><${Tokens} /></div></div>`;
  }}<//>`;
}
