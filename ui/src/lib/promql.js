// Questions to the hot window, over the same Prometheus API that Grafana uses.
import { useEffect, useState } from 'preact/hooks';
import { clock } from './clock.js';

const root = new URL('prometheus/api/v1/', document.baseURI);
const POINTS = 240;
const AGAIN_MS = 15_000;

async function ask(path, form, signal) {
  const response = await fetch(new URL(path, root), { method: form ? 'POST' : 'GET', body: form && new URLSearchParams(form), signal });
  const body = await response.json().catch(() => null);
  if (body?.status !== 'success') throw new Error(body?.error ?? body?.detail ?? `HTTP ${response.status}`);
  return body.data;
}

/** Names of the metrics there are. */
export function useMetrics() {
  const [names, setNames] = useState([]);
  useEffect(() => { ask('label/__name__/values').then(setNames, () => {}); }, []);
  return names;
}

/** A query over the last `seconds`: { times, series: [{ metric, values }], error, busy }, asked again while it is on screen. */
export function useRange(query, seconds) {
  const [state, setState] = useState({ times: [], series: null, error: null, busy: true });
  useEffect(() => {
    if (!query) { setState({ times: [], series: null, error: null, busy: false }); return undefined; }
    const stop = new AbortController();
    const run = async () => {
      const step = Math.max(5, Math.ceil(seconds / POINTS));
      const end = Math.floor(clock.now() / 1000 / step) * step;
      const start = end - step * Math.floor(seconds / step);
      try {
        const { result } = await ask('query_range', { query, start, end, step }, stop.signal);
        const times = Array.from({ length: (end - start) / step + 1 }, (_, k) => start + k * step);
        const series = result.map(({ metric, values }) => {
          const line = new Array(times.length).fill(null);
          for (const [at, text] of values) { const v = Number(text); if (Number.isFinite(v)) line[Math.round((at - start) / step)] = v; }
          return { metric, values: line };
        });
        setState({ times, series, error: null, busy: false });
      } catch (error) {
        if (!stop.signal.aborted) setState((old) => ({ ...old, error, busy: false }));
      }
    };
    setState((old) => ({ ...old, busy: true }));
    run();
    const timer = setInterval(() => { if (!document.hidden) run(); }, AGAIN_MS);
    return () => { clearInterval(timer); stop.abort(); };
  }, [query, seconds]);
  return state;
}
