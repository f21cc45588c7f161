// Words and numbers in the reader's language. A message is a string with {names}, or a function of its
// arguments where a language needs a choice (plurals). A test compares the keys of both languages.
import { useEffect, useState } from 'preact/hooks';

const LOADERS = { en: () => import('../i18n/en.js'), zh: () => import('../i18n/zh.js') }; // a file each: nobody reads both at once
const TABLES = {};
const LOCALES = { en: 'en-GB', zh: 'zh-CN' };
const listeners = new Set();
let language = localStorage.getItem('language') ?? (navigator.language.startsWith('zh') ? 'zh' : 'en');
document.documentElement.lang = language;

export const languages = [['en', 'English'], ['zh', '中文']];

async function words(of) {
  TABLES[of] ??= (await LOADERS[of]())[of];
}

/** Loads the words of the reader's language; nothing is drawn before. */
export const loadLanguage = () => words(language);

export async function setLanguage(next) {
  await words(next);
  language = next;
  localStorage.setItem('language', next);
  document.documentElement.lang = next;
  for (const listener of listeners) listener(next);
}

/** Redraws the caller when the language changes. The shell calls it, and with it every page is redrawn. */
export function useLanguage() {
  const [value, setValue] = useState(language);
  useEffect(() => {
    listeners.add(setValue);
    return () => listeners.delete(setValue);
  }, []);
  return value;
}

/** The text of a message. A missing key is shown as it is, so that a test and a reader see it. */
export function t(id, args) {
  const message = TABLES[language][id];
  if (message === undefined) return id;
  if (typeof message === 'function') return message(args ?? {}, fmt);
  return args ? message.replace(/\{(\w+)\}/g, (_, name) => (args[name] === undefined ? '' : typeof args[name] === 'number' ? fmt.num(args[name]) : args[name])) : message;
}

/** Whether there is a text with that id. */
export const known = (id) => TABLES[language][id] !== undefined;

/** The text of the first id that is known, or the fallback. */
export const name = (prefix, key, fallback = key) => (known(`${prefix}.${key}`) ? t(`${prefix}.${key}`) : String(fallback ?? '').replaceAll('_', ' '));

/** A text that came over the wire by language; what has none in the reader's is told in English. */
export const inWords = (texts, fallback = '') => texts?.[language] ?? texts?.en ?? fallback;

/**
 * The text of a message that came over the wire as { id, args }, or with its words. Where this version does not know
 * the id, or lacks an argument, the plain sentence of the record stands in: an id is never shown.
 */
export function textOf(message, fallback = '') {
  if (message?.text) return inWords(message.text, fallback);
  const found = message?.id && TABLES[language][message.id];
  if (found === undefined || found === null || found === '') return fallback;
  const args = Object.fromEntries(Object.entries(message.args ?? {}).map(([key, v]) => [key, v?.id ? textOf(v) || undefined : v])); // an argument may be a sentence itself
  if (typeof found === 'string') return [...found.matchAll(/\{(\w+)\}/g)].every(([, key]) => args[key] !== undefined) ? t(message.id, args) : fallback;
  let lacks = false;
  const text = found(new Proxy(args, { get(target, key) { if (target[key] === undefined) lacks = true; return target[key]; } }), fmt);
  return lacks ? fallback : text;
}

/** The first sentence of a longer text. */
export const firstSentence = (text) => /^.*?[.!?。](?=\s|$)/s.exec(text ?? '')?.[0] ?? text ?? '';

const formats = new Map();
function intl(kind, options) {
  const key = `${language} ${kind} ${JSON.stringify(options)}`;
  if (!formats.has(key)) formats.set(key, new Intl[kind](LOCALES[language], options));
  return formats.get(key);
}

const UNITS = [['d', 86_400], ['h', 3600], ['min', 60], ['s', 1]];

export const fmt = {
  /** All digits before the point, three that count, and so many after the point where they are asked for. */
  num: (v, digits = 0) => (v == null ? '–' : intl('NumberFormat', { maximumSignificantDigits: 3, maximumFractionDigits: digits, roundingPriority: 'morePrecision' }).format(v)),
  /** A tick of an axis, with the decimals that tell it from the next one. */
  tick(v, step) {
    let digits = 0;
    while (digits < 9 && Math.abs(step * 10 ** digits - Math.round(step * 10 ** digits)) > 1e-6) digits += 1;
    return fmt.num(v, digits);
  },
  fixed: (v, digits) => (v == null ? '–' : intl('NumberFormat', { minimumFractionDigits: digits, maximumFractionDigits: digits }).format(v)),
  /** Large numbers: SI prefixes in English (1.2 M), 万 and 亿 in Chinese. */
  compact(v) {
    if (v == null || Math.abs(v) < (language === 'zh' ? 1e4 : 999.5)) return fmt.num(v);
    if (language === 'zh') return intl('NumberFormat', { notation: 'compact', maximumFractionDigits: 1 }).format(v);
    const [size, prefix] = [[1e12, 'T'], [1e9, 'G'], [1e6, 'M'], [1e3, 'k']].find(([limit]) => Math.abs(v) >= 0.99995 * limit) ?? [1e3, 'k'];
    return `${fmt.fixed(v / size, 1)} ${prefix}`;
  },
  pct: (v, digits = 0) => (v == null ? '–' : intl('NumberFormat', { style: 'percent', maximumFractionDigits: digits }).format(v)),
  /** A probability never reads as certain: 0.997 is "> 99 %". */
  prob: (v) => (v > 0.99 ? `>\u00a0${fmt.pct(0.99)}` : v > 0 && v < 0.01 ? `<\u00a0${fmt.pct(0.01)}` : fmt.pct(v)),
  /** The largest unit, and the next one while the first is small: "2 min 52 s", "9 d". */
  dur(seconds) {
    if (seconds == null || Number.isNaN(seconds)) return '–';
    let rest = Math.max(0, Math.round(seconds));
    const at = UNITS.findIndex(([, size]) => rest >= size);
    if (at < 0) return `0 ${t('unit.s')}`;
    const [unit, size] = UNITS[at];
    const whole = Math.floor(rest / size);
    rest -= whole * size;
    const next = UNITS[at + 1];
    const minor = next && whole < 5 ? Math.floor(rest / next[1]) : 0;
    return `${fmt.num(whole)} ${t(`unit.${unit}`)}${minor ? ` ${minor} ${t(`unit.${next[0]}`)}` : ''}`;
  },
  /** The word for a key, such as the name of a rung, within a sentence. */
  word: (prefix, key) => name(prefix, key),
  clock: (ms) => intl('DateTimeFormat', { hour: '2-digit', minute: '2-digit', second: '2-digit', hourCycle: 'h23', timeZone: 'UTC' }).format(ms),
  minute: (ms) => intl('DateTimeFormat', { hour: '2-digit', minute: '2-digit', hourCycle: 'h23', timeZone: 'UTC' }).format(ms),
  day: (ms) => intl('DateTimeFormat', { day: 'numeric', month: 'short', timeZone: 'UTC' }).format(ms),
  stamp: (ms) => `${fmt.day(ms)} ${fmt.minute(ms)}`,
};
