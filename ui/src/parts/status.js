// The eight states of a thing. Colour never speaks alone: each state has a shape, and a letter where there is
// room. The order is the digit that the API sends, and `rank` says which state wins when one cell stands for many.
import { html } from '../lib/html.js';
import { t } from '../lib/i18n.js';

export const STATES = [
  { key: 'ok', token: 'ok', letter: '', rank: 0 },
  { key: 'warning', token: 'warning', letter: 'W', rank: 4 },
  { key: 'critical', token: 'critical', letter: 'C', rank: 7 },
  { key: 'affected', token: 'affected', letter: 'a', rank: 5 },
  { key: 'predicted', token: 'predicted', letter: 'P', rank: 2 },
  { key: 'acting', token: 'action', letter: 'R', rank: 3 },
  { key: 'out', token: 'out', letter: '–', rank: 1 },
  { key: 'unknown', token: 'unknown', letter: '?', rank: 6 },
];

const SHAPES = {
  ok: html`<circle cx="8" cy="8" r="4.2" fill="currentColor" />`,
  warning: html`<path d="M8 2.2 14.4 13.6H1.6Z" fill="currentColor" />`,
  critical: html`<path d="M8 .9 15.1 8 8 15.1.9 8Z" fill="currentColor" />`,
  affected: html`<path d="M8 2.3 13.7 8 8 13.7 2.3 8Z" fill="none" stroke="currentColor" stroke-width="1.9" />`,
  predicted: html`<g fill="none" stroke="currentColor" stroke-width="1.9" stroke-linecap="round"><circle cx="8" cy="8" r="6" /><path d="M8 4.6V8l2.4 1.6" /></g>`,
  acting: html`<path d="M3.4 2.2 13.8 8 3.4 13.8Z" fill="currentColor" />`,
  out: html`<rect x="2" y="6.2" width="12" height="3.6" rx="1" fill="currentColor" />`,
  unknown: html`<circle cx="8" cy="8" r="5.6" fill="none" stroke="currentColor" stroke-width="1.9" stroke-dasharray="2.6 2.4" />`,
  waiting: html`<g fill="currentColor"><rect x="3.6" y="2.6" width="3.2" height="10.8" rx="1" /><rect x="9.2" y="2.6" width="3.2" height="10.8" rx="1" /></g>`,
  done: html`<path d="m2.6 8.6 3.6 3.6 7.2-8" fill="none" stroke="currentColor" stroke-width="2.2" stroke-linecap="round" stroke-linejoin="round" />`,
  failed: html`<path d="m3.6 3.6 8.8 8.8m0-8.8-8.8 8.8" fill="none" stroke="currentColor" stroke-width="2.2" stroke-linecap="round" />`,
  skipped: html`<path d="M2.6 8h2m2.4 0h2m2.4 0h2" fill="none" stroke="currentColor" stroke-width="2" stroke-linecap="round" />`,
  later: html`<circle cx="8" cy="8" r="2.6" fill="none" stroke="currentColor" stroke-width="1.6" />`,
  person: html`<g fill="currentColor"><circle cx="8" cy="4.6" r="2.8" /><path d="M2.4 14c.4-3.6 2.6-5.2 5.6-5.2s5.2 1.6 5.6 5.2Z" /></g>`,
};

/** A shape alone; `label` is read aloud, and without it the shape is decoration. */
export const Shape = ({ kind, token, size = 12, label }) =>
  html`<svg class=${`shape c-${token ?? kind}`} width=${size} height=${size} viewBox="0 0 16 16" role=${label ? 'img' : undefined} aria-label=${label} aria-hidden=${label ? undefined : 'true'}>${SHAPES[kind] ?? SHAPES.later}</svg>`;

/** Shape and word of a state, by digit or by key. */
export function StateTag({ state, text }) {
  const found = typeof state === 'number' ? STATES[state] : STATES.find((s) => s.key === state);
  return html`<span class=${`tag c-${found.token}`}><${Shape} kind=${found.key} token=${found.token} />${text ?? t(`state.${found.key}`)}</span>`;
}

/** The shape of an incident's severity; error and critical look alike on purpose. */
export const severityKind = (severity) => (severity === 'critical' || severity === 'error' ? 'critical' : severity === 'warning' ? 'warning' : 'ok');

const STEP = { proposed: ['waiting', 'text'], approved: ['acting', 'action'], verifying: ['acting', 'action'], unknown: ['unknown', 'critical'], refused: ['skipped', 'out'], done: ['done', 'ok'], failed: ['failed', 'critical'], waiting: ['waiting', 'warning'], running: ['acting', 'action'], skipped: ['skipped', 'out'], later: ['later', 'out'], unneeded: ['skipped', 'out'], person: ['person', 'text'], cancelled: ['failed', 'out'], quarantined: ['out', 'out'] };

/** Shape and colour token of a step of the ladder. */
export const stepShape = (state) => STEP[state] ?? STEP.later;
