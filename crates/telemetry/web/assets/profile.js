// Profiles of the running server: started and stopped here, shown as flame graphs and tables.

import { h, say, note } from './dom.js';
import { get, post } from './server.js';
import { plainTable } from './table.js';
import { Flame, treeOf, functionsOf } from './flame.js';
import { locked } from './views.js';
import { bytes, exact, time } from './format.js';

const ASK_MS = 1000;
const ROWS_SHOWN = 30;
const KINDS = { cpu: 'On-CPU', waits: 'Waiting' };

// The profile is kept when the user switches to another view. There is only one at a time, as in the server.
let taken = { state: 'none' };
let shown = null;

function tell(next) {
  taken = next;
  shown?.show();
}

async function begin(kind, seconds) {
  tell({ state: 'begun', kind, words: 'Starting.' });
  try {
    const { id } = await post('profile', `${kind} ${seconds}`);
    await follow(id, kind);
  } catch (error) {
    tell({ state: 'none', words: error.message });
  }
}

// Polls until the profile has ended: the server stops a profile that no client polls.
async function follow(id, kind) {
  for (;;) {
    const told = await get(`profile/${id}`);
    const words = `${KINDS[kind]}: ${Math.round(told.elapsed_ms / 1000)} s, ${told.samples} ${kind === 'cpu' ? 'samples' : 'waits'}${told.lost ? `, ${told.lost} lost` : ''}`;
    if (told.is_done) { tell({ state: 'done', id, kind, words, told }); return; }
    tell({ state: 'runs', id, kind, words: `${words} …` });
    await new Promise((resolve) => { setTimeout(resolve, ASK_MS); });
  }
}

export class Profiles {
  constructor(context) {
    this.context = context;
    this.seconds = h('input', { type: 'number', class: 'seconds', min: '1', max: '600', value: '10', 'aria-label': 'Seconds' });
    this.starts = Object.entries(KINDS).map(([kind, title]) => h('button', { type: 'button', data: { kind }, on: { click: () => begin(kind, Math.round(Number(this.seconds.value)) || 10) } }, title));
    this.end = h('button', { type: 'button', data: { act: 'end' }, on: { click: () => post(`profile/${taken.id}/stop`, '').catch((error) => say(this.state, error.message)) } }, 'Stop now');
    this.state = h('p', { class: 'faint', role: 'status' });
    this.body = h('div', { class: 'stack' });
    this.controls = h('div', { class: 'panel stack' }, h('div', { class: 'title' }, ...this.starts, 'for', this.seconds, 'seconds', this.end), this.state);
    this.element = h('section', { class: 'view' }, h('div', { class: 'title' }, h('h1', {}, 'Profile'), h('span', { class: 'faint' }, 'where the time of the running server goes, function by function')), this.controls, this.body);
    shown = this;
    this.show();
  }

  get filter() { return this.flame?.search; }

  show() {
    const isBusy = taken.state === 'begun' || taken.state === 'runs';
    for (const button of this.starts) button.disabled = isBusy;
    this.end.disabled = taken.state !== 'runs';
    say(this.state, taken.words ?? 'The server keeps serving. Profiling costs nothing while no profile is taken.');
    if (taken.state === 'done' && this.drawn !== taken.id) this.drawAll();
    if (isBusy) { this.drawn = undefined; this.flame = undefined; this.body.replaceChildren(); }
  }

  drawAll() {
    this.drawn = taken.id;
    const root = treeOf(taken.told.stacks);
    if (root.value === 0) {
      this.body.replaceChildren(h('div', { class: 'panel' }, note('Nothing to draw', 'Nothing ran, or nothing waited, while the profile was taken.')));
      return;
    }
    this.flame = new Flame(root, taken.kind);
    const save = h('p', {}, h('a', { href: `/api/profile/${taken.id}/svg`, download: true }, 'Save as SVG'), h('span', { class: 'faint' }, ', a self-contained picture that can be searched and zoomed'));
    this.body.replaceChildren(this.flame.element, save, ...tables(root, taken.told));
  }

  async look() {
    if (this.context.about.signed_in) { await get('about'); return; }
    this.controls.hidden = true;
    this.body.replaceChildren(locked('Profiles'));
  }

  draw() {}
}

function tables(root, told) {
  const functions = functionsOf(root).map(({ name, own, total }) => [name, time(own * 1000), time(total * 1000), `${((100 * total) / root.value).toFixed(1)} %`]);
  return [
    panel('functions', 'Functions', ['Function', 'Self', 'With callees', 'Share'], functions),
    panel('latencies', 'Latencies by what calls waited for', ['Call', 'Waited for', 'Calls', 'Total', 'p50', 'p90', 'p99', 'Longest'], rows(told.latencies, (row) => [row[0], row[1], exact(row[2]), ...row.slice(3).map(time)])),
    panel('locks', 'Locks', ['Lock', 'Held since', 'Waiting thread', 'Waits', 'Total', 'Longest'], rows(told.locks, (row) => [row[0], row[1], row[2] || '–', exact(row[3]), time(row[4]), time(row[5])])),
    panel('io', 'Disk accesses', ['Access', 'For', 'Volume', 'Accesses', 'Bytes', 'Total', 'Longest', 'Functions'], rows(told.io, (row) => [row[0], row[1] || '–', row[3] || '–', exact(row[4]), bytes(row[5]), time(row[6]), time(row[7]), row[2].split(';').slice(-3).join(' › ')])),
  ].filter(Boolean);
}

// Parses tab-separated lines after the header line; cells that contain only digits become numbers.
function rows(table, make) {
  return table.split('\n').slice(1).filter((line) => line !== '').map((line) => make(line.split('\t').map((cell) => (/^\d+$/.test(cell) ? Number(cell) : cell))));
}

function panel(name, title, headings, all) {
  if (all.length === 0) return null;
  return h('div', { class: 'panel' }, h('h2', {}, title), plainTable(name, title, headings, all.slice(0, ROWS_SHOWN)),
    all.length > ROWS_SHOWN && h('p', { class: 'faint foot' }, `${all.length - ROWS_SHOWN} more; cellar profile --json has all`));
}
