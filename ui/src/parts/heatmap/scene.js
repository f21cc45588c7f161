// What the heat map draws: places, colours and the view. It knows nothing of Preact; the component feeds it.
import { token } from '../../lib/theme.js';
import { STATES } from '../status.js';
import { layout } from './layout.js';

const FILL = STATES.map((s) => `${s.token}-fill`);
const STEPS = 5;
const RANGES = { temp: [30, 85], power: [1500, 10500], load: [0, 100], risk: [0, 100] };
export const UNIT = { temp: '°', power: 'kW', load: '%', risk: '%' };
export const CATEGORIES = 6;
const UNMEASURED = 7;

export class Scene {
  /** @param picture the answer of GET /fleet; its arrays are updated in place by `change`. */
  constructor(picture, width, height) {
    this.picture = picture;
    this.count = picture.servers.name.length;
    this.states = Uint8Array.from(picture.servers.state);
    this.place = layout(picture, width, height);
    this.bucket = new Uint8Array(this.count);
    this.order = new Uint32Array(this.count);
    this.by = 'health';
    this.only = false;
    this.view = { k: 1, x: 0, y: 0 };
    this.tenants = [...new Set(picture.jobs.map((j) => j.tenant))];
    this.colour(this.by);
  }

  /** Chooses what colour means, and sorts the servers by colour so that a frame changes the brush seldom. */
  colour(by) {
    this.by = by;
    for (let i = 0; i < this.count; i++) this.bucket[i] = this.bucketOf(i);
    this.sort();
  }

  bucketOf(i) {
    const { servers, jobs } = this.picture;
    if (this.by === 'health') return this.states[i];
    if (this.by === 'job') return servers.job[i] < 0 ? CATEGORIES : this.tenants.indexOf(jobs[servers.job[i]].tenant) % CATEGORIES;
    const [low, high] = RANGES[this.by];
    if (servers[this.by][i] === null) return UNMEASURED;
    return Math.max(0, Math.min(STEPS - 1, Math.floor(((servers[this.by][i] - low) / (high - low)) * STEPS)));
  }

  sort() {
    const starts = new Uint32Array(17);
    for (let i = 0; i < this.count; i++) starts[this.bucket[i] + 1]++;
    for (let b = 0; b < 16; b++) starts[b + 1] += starts[b];
    for (let i = 0; i < this.count; i++) this.order[starts[this.bucket[i]]++] = i;
  }

  /** Takes changes of the live stream: [index, state, gpus, temp, power, load]. True if a state changed. */
  change(changes) {
    const { servers } = this.picture;
    let moved = false;
    let turned = false;
    for (const [i, state, gpus, temp, power, load] of changes) {
      if (i >= this.count) continue;
      turned ||= this.states[i] !== state;
      this.states[i] = state;
      servers.state[i] = state;
      servers.gpus[i] = gpus; servers.temp[i] = temp; servers.power[i] = power; servers.load[i] = load;
      const bucket = this.bucketOf(i);
      if (bucket !== this.bucket[i]) { this.bucket[i] = bucket; moved = true; }
    }
    if (moved) this.sort();
    return turned;
  }

  /** The server under a point of the canvas, or -1. */
  hit(px, py) {
    const { k, x, y } = this.view;
    const wx = (px - x) / k;
    const wy = (py - y) / k;
    const { boxes } = this.place;
    for (const rack of this.place.racks) {
      if (wx < rack.x || wx > rack.x + rack.w || wy < rack.y || wy > rack.y + rack.h) continue;
      for (const i of rack.servers) if (wy >= boxes[i * 4 + 1] && wy <= boxes[i * 4 + 1] + boxes[i * 4 + 3] + 3) return i;
    }
    return -1;
  }

  /** The nearest server in a direction, for the arrow keys. */
  step(from, dx, dy) {
    const { boxes } = this.place;
    const [x, y] = [boxes[from * 4] + boxes[from * 4 + 2] / 2, boxes[from * 4 + 1] + boxes[from * 4 + 3] / 2];
    let best = from;
    let cost = Infinity;
    for (let i = 0; i < this.count; i++) {
      const [ex, ey] = [boxes[i * 4] + boxes[i * 4 + 2] / 2 - x, boxes[i * 4 + 1] + boxes[i * 4 + 3] / 2 - y];
      const along = ex * dx + ey * dy;
      const across = Math.abs(ex * dy) + Math.abs(ey * dx);
      if (along <= 0.5 || along + across * 3 >= cost) continue;
      best = i;
      cost = along + across * 3;
    }
    return best;
  }

  /** The next server that is not healthy, after `from`, in either direction. */
  problem(from, by) {
    for (let n = 1; n <= this.count; n++) {
      const i = (from + by * n + this.count * 2) % this.count;
      if (this.states[i] !== 0) return i;
    }
    return from;
  }

  /** Zooms by a factor around a point and keeps the picture on the canvas. */
  zoom(factor, px, py) {
    const k = Math.max(1, Math.min(24, this.view.k * factor));
    const f = k / this.view.k;
    this.view = { k, x: px - (px - this.view.x) * f, y: py - (py - this.view.y) * f };
    this.pan(0, 0);
  }

  pan(dx, dy) {
    const { k } = this.view;
    const clamp = (v, size) => Math.min(0, Math.max(size * (1 - k), v));
    this.view = { k, x: clamp(this.view.x + dx, this.place.width), y: clamp(this.view.y + dy, this.place.height) };
  }

  /** The view that shows one server large enough to read. */
  close(i, size = 44) {
    const { boxes, cell, width, height } = this.place;
    const k = Math.max(this.view.k, Math.min(24, size / cell));
    const old = this.view;
    this.view = { k, x: width / 2 - (boxes[i * 4] + boxes[i * 4 + 2] / 2) * k, y: height / 2 - (boxes[i * 4 + 1] + boxes[i * 4 + 3] / 2) * k };
    this.pan(0, 0);
    const target = this.view;
    this.view = old;
    return target;
  }

  brush(bucket) {
    if (this.by === 'health') return token(FILL[bucket]);
    if (this.by === 'job') return bucket === CATEGORIES ? token('raised') : token(`cat-${bucket}`);
    return token(bucket === UNMEASURED ? 'raised' : `scale-${bucket}`);
  }

  /** Draws one frame. `mark` is the server with the keyboard, `hover` the one under the pointer. */
  draw(ctx, ratio, { mark = -1, hover = -1 } = {}) {
    ctx.setTransform(ratio, 0, 0, ratio, 0, 0);
    ctx.fillStyle = token('surface');
    ctx.fillRect(0, 0, ctx.canvas.width / ratio, ctx.canvas.height / ratio);
    if (this.place.kind === 'cards') this.drawCards(ctx);
    else this.drawField(ctx);
    this.ring(ctx, hover, token('text-2'), 1);
    this.ring(ctx, mark, token('focus'), 2);
  }

  ring(ctx, i, colour, width) {
    if (i < 0) return;
    const { boxes } = this.place;
    const { k, x, y } = this.view;
    ctx.strokeStyle = colour;
    ctx.lineWidth = width;
    const out = width + 0.5;
    ctx.strokeRect(boxes[i * 4] * k + x - out, boxes[i * 4 + 1] * k + y - out, boxes[i * 4 + 2] * k + out * 2, boxes[i * 4 + 3] * k + out * 2);
  }

  drawField(ctx) {
    const { boxes, racks, labels } = this.place;
    const { k, x, y } = this.view;
    const right = ctx.canvas.clientWidth;
    const bottom = ctx.canvas.clientHeight;
    const w0 = boxes[2] * k;
    const h0 = boxes[3] * k;
    const inset = w0 > 9 ? 1 : h0 > 3 ? 0.5 : 0.25;
    const detail = Math.min(w0, h0) >= 22;
    const visible = [];
    let last = -1;
    for (let n = 0; n < this.count; n++) {
      const i = this.order[n];
      const px = boxes[i * 4] * k + x;
      const py = boxes[i * 4 + 1] * k + y;
      if (px > right || py > bottom || px + w0 < 0 || py + h0 < 0) continue;
      if (detail && this.by === 'health') { visible.push(i); continue; }
      if (this.bucket[i] !== last) { last = this.bucket[i]; ctx.fillStyle = this.brush(last); }
      if (this.only && this.states[i] === 0) { ctx.globalAlpha = 0.25; ctx.fillRect(px, py, w0 - inset, h0 - inset); ctx.globalAlpha = 1; continue; }
      ctx.fillRect(px, py, w0 - inset, h0 - inset);
      if (detail || this.states[i] !== 0) visible.push(i);
    }
    this.hollow(ctx, visible, w0 - inset, h0 - inset);
    this.letters(ctx, visible, w0, h0, detail);
    ctx.font = `500 11px ${getComputedStyle(ctx.canvas).fontFamily}`;
    ctx.textBaseline = 'alphabetic';
    racks.forEach((rack, r) => {
      if (this.picture.racks[r].feeds.includes(2)) { // the cause is the feed, so the rack itself is marked
        ctx.fillStyle = token('critical-fill');
        ctx.fillRect(rack.x * k + x - 1, (rack.y + rack.h) * k + y, rack.w * k + 1, 2);
      }
      if (rack.w * k > 34) this.label(ctx, rack.name, rack.x * k + x, rack.y * k + y - 4, 'text-3');
    });
    for (const label of labels) this.label(ctx, label.text, label.x * k + x, label.y * k + y, label.strong ? 'text-2' : 'text-3', label.strong);
  }

  /** Servers without contact are outlines: there is nothing to fill them with. */
  hollow(ctx, list, w, h) {
    const { boxes } = this.place;
    const { k, x, y } = this.view;
    if (this.by !== 'health') return;
    ctx.strokeStyle = token('unknown');
    ctx.lineWidth = 1;
    for (const i of list) if (this.states[i] === 7) ctx.strokeRect(boxes[i * 4] * k + x + 0.5, boxes[i * 4 + 1] * k + y + 0.5, w - 1, h - 1);
  }

  label(ctx, text, x, y, colour, strong) {
    ctx.fillStyle = token(colour);
    if (strong) ctx.font = ctx.font.replace('500', '600');
    ctx.fillText(text, x, y);
    if (strong) ctx.font = ctx.font.replace('600', '500');
  }

  /** Letters on cells that are large enough, and the GPUs of a server once its cell is. */
  letters(ctx, list, w, h, detail) {
    const { boxes } = this.place;
    const { k, x, y } = this.view;
    if (Math.min(w, h) < 9) return;
    const family = getComputedStyle(ctx.canvas).fontFamily;
    ctx.textBaseline = 'middle';
    ctx.textAlign = 'center';
    for (const i of list) {
      const px = boxes[i * 4] * k + x;
      const py = boxes[i * 4 + 1] * k + y;
      const open = detail && this.by === 'health';
      if (open) this.gpuBlock(ctx, i, px + 2, py + 2, w - 5, h - 5);
      const { letter } = STATES[this.states[i]];
      if (!letter) continue;
      if (open) this.badge(ctx, i, px, py, w, h);
      ctx.font = `700 ${open ? 10 : Math.min(11, h * 0.8)}px ${family}`;
      ctx.fillStyle = this.ink(this.states[i]);
      ctx.fillText(letter, open ? px + w - 8 : px + w / 2, open ? py + 7 : py + h / 2 + 0.5);
    }
    ctx.textAlign = 'left';
  }

  /** The frame of a server that is not healthy, with room for its letter in the corner. */
  badge(ctx, i, px, py, w, h) {
    ctx.strokeStyle = token(STATES[this.states[i]].token);
    ctx.lineWidth = 1.5;
    ctx.strokeRect(px, py, w - 1.5, h - 1.5);
    ctx.fillStyle = this.states[i] === 7 ? token('raised') : token(FILL[this.states[i]]);
    ctx.fillRect(px + w - 15, py, 14, 14);
  }

  /** Eight GPUs of a server inside its cell, 4 by 2. */
  gpuBlock(ctx, i, px, py, w, h) {
    const digits = this.picture.servers.gpus[i];
    const cw = w / 4;
    const ch = h / 2;
    for (let g = 0; g < Math.min(8, digits.length); g++) {
      const state = digits.charCodeAt(g) - 48;
      ctx.fillStyle = token(FILL[state]);
      ctx.fillRect(px + (g % 4) * cw, py + Math.floor(g / 4) * ch, cw - 1.5, ch - 1.5);
    }
  }

  /** The colour of a letter on a fill. */
  ink(state) {
    const dark = document.documentElement.dataset.theme === 'dark';
    const light = [2, 4, 5].includes(state) || (state === 1);
    if (state === 3) return token('affected');
    if (state === 6 || state === 7) return token('text');
    return dark ? '#0b0d11' : light ? '#ffffff' : token('text');
  }

  drawCards(ctx) {
    const family = getComputedStyle(ctx.canvas).fontFamily;
    const { boxes, racks } = this.place;
    racks.forEach((rack, r) => this.rack(ctx, rack, this.picture.racks[r], family));
    for (let i = 0; i < this.count; i++) {
      const [x, y, w, h] = boxes.subarray(i * 4, i * 4 + 4);
      const state = this.states[i];
      const names = 24;
      const tail = 15;
      ctx.textBaseline = 'middle';
      ctx.font = `500 11px ${family}`;
      ctx.fillStyle = token(state === 0 ? 'text-3' : 'text');
      ctx.globalAlpha = this.only && state === 0 ? 0.3 : 1;
      ctx.fillText(this.picture.servers.name[i].slice(-2), x + 1, y + h / 2 + 0.5);
      if (this.by === 'health') this.gpuLine(ctx, i, x + names, y, w - names - tail, h);
      else this.valueLine(ctx, i, x + names, y, w - names - tail, h, family);
      ctx.globalAlpha = 1;
      if (state !== 0) this.glyph(ctx, state, x + w - 6, y + h / 2, family);
    }
  }

  rack(ctx, rack, info, family) {
    ctx.strokeStyle = token('line');
    ctx.lineWidth = 1;
    ctx.beginPath();
    ctx.roundRect(rack.x + 0.5, rack.y + 0.5, rack.w - 1, rack.h - 1, 6);
    ctx.stroke();
    ctx.textBaseline = 'middle';
    ctx.font = `600 12px ${family}`;
    ctx.fillStyle = token('text');
    ctx.fillText(rack.name, rack.x + 9, rack.y + 12);
    ['A', 'B'].forEach((feed, n) => this.feed(ctx, feed, info.feeds[n], rack.x + rack.w - 44 + n * 22, rack.y + 12, family));
  }

  /** A power feed in the head of a rack: quiet when healthy, marked when it is the cause. */
  feed(ctx, name, state, x, y, family) {
    ctx.font = `600 10px ${family}`;
    if (state !== 0) {
      ctx.fillStyle = token(FILL[state]);
      ctx.beginPath();
      ctx.roundRect(x - 4, y - 8, 18, 15, 3);
      ctx.fill();
      ctx.fillStyle = this.ink(state);
    } else ctx.fillStyle = token('text-3');
    ctx.fillText(name, x + 1.5, y + 0.5);
  }

  gpuLine(ctx, i, x, y, w, h) {
    const digits = this.picture.servers.gpus[i];
    const cw = w / Math.max(1, digits.length);
    for (let g = 0; g < digits.length; g++) {
      const state = digits.charCodeAt(g) - 48;
      const px = x + g * cw;
      if (state === 7) {
        ctx.strokeStyle = token('unknown');
        ctx.setLineDash([2, 2]);
        ctx.strokeRect(px + 0.5, y + 0.5, cw - 3, h - 1);
        ctx.setLineDash([]);
        continue;
      }
      ctx.fillStyle = token(FILL[state]);
      ctx.beginPath();
      ctx.roundRect(px, y, cw - 2, h, 2);
      ctx.fill();
      if (state === 6) this.hatch(ctx, px, y, cw - 2, h);
      if (state === 2) { ctx.fillStyle = this.ink(2); ctx.beginPath(); const [mx, my] = [px + cw / 2 - 1, y + h / 2]; ctx.moveTo(mx, my - 4); ctx.lineTo(mx + 4, my); ctx.lineTo(mx, my + 4); ctx.lineTo(mx - 4, my); ctx.fill(); }
    }
  }

  hatch(ctx, x, y, w, h) {
    ctx.save();
    ctx.beginPath();
    ctx.rect(x, y, w, h);
    ctx.clip();
    ctx.strokeStyle = token('surface');
    ctx.lineWidth = 1.5;
    for (let d = -h; d < w; d += 5) { ctx.beginPath(); ctx.moveTo(x + d, y + h); ctx.lineTo(x + d + h, y); ctx.stroke(); }
    ctx.restore();
  }

  valueLine(ctx, i, x, y, w, h, family) {
    const { servers, jobs } = this.picture;
    ctx.fillStyle = this.brush(this.bucket[i]);
    ctx.beginPath();
    ctx.roundRect(x, y, w - 2, h, 2);
    ctx.fill();
    const text = this.by !== 'job' && servers[this.by][i] === null ? '–' : this.by === 'job' ? (servers.job[i] < 0 ? '' : jobs[servers.job[i]].id) : this.by === 'power' ? `${(servers.power[i] / 1000).toFixed(1)} ${UNIT.power}` : `${servers[this.by][i]}${UNIT[this.by]}`;
    const dark = document.documentElement.dataset.theme === 'dark';
    ctx.fillStyle = this.bucket[i] === UNMEASURED ? token('text-3') : this.by === 'job' ? (this.bucket[i] === CATEGORIES ? token('text') : dark ? '#0b0d11' : '#ffffff') : dark ? (this.bucket[i] >= 3 ? '#0b0d11' : '#e8eaee') : this.bucket[i] >= 3 ? '#ffffff' : '#13171e';
    ctx.font = `500 11px ${family}`;
    ctx.textAlign = 'right';
    ctx.fillText(text, x + w - 8, y + h / 2 + 0.5);
    ctx.textAlign = 'left';
  }

  glyph(ctx, state, x, y, family) {
    ctx.fillStyle = token(STATES[state].token);
    ctx.font = `700 11px ${family}`;
    ctx.textAlign = 'center';
    ctx.fillText(STATES[state].letter, x, y + 0.5);
    ctx.textAlign = 'left';
  }
}
