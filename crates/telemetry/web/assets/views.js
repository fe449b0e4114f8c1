// Views that need no sign-in: the overview, and every table that the server declares.

import { h, say, note } from './dom.js';
import { get, Refused } from './server.js';
import { columnsOf, rowsOf, since } from './figures.js';
import { FigureTable } from './table.js';
import { Chart, spark, sparkCanvas } from './chart.js';
import { Heat } from './heat.js';
import { text } from './format.js';

const TILE_POINTS = 60;

// Returns a panel that explains how to sign in.
export function locked(what) {
  return h('section', { class: 'panel locked' }, note(`${what}: sign in to see this`,
    'Who uses what is private, as in cellar stat. On the server, as a user who may read the cell’s keys, run',
    h('pre', {}, h('code', {}, 'cellar web login --config cellar.toml')),
    'and open the address that it prints in this browser within five minutes.'));
}

class Tile {
  constructor(title, read) {
    this.read = read;
    this.value = h('b', { class: 'number' }, '–');
    this.canvas = sparkCanvas(TILE_POINTS, 'spark');
    this.element = h('div', { class: 'tile' }, h('span', { class: 'faint' }, title), this.value, this.canvas);
  }

  show(history) {
    const { values, label } = this.read(history);
    say(this.value, label);
    spark(this.canvas, values.slice(-TILE_POINTS));
  }
}

// The overview: recent activity of the server, drawn from its history.
export class Overview {
  constructor(context) {
    this.context = context;
    const { about } = context;
    const { charts, heats, heat_bounds_ns } = about.history;
    let first = 0;
    this.charts = charts.map((chart) => { const one = new Chart(chart, first); first += chart.lines.length; return one; });
    this.heats = heats.map((heat, index) => new Heat(heat, index, heat_bounds_ns));
    this.tiles = this.makeTiles(charts, heat_bounds_ns);
    this.element = h('div', { class: 'overview' },
      h('h1', { class: 'unseen' }, `Overview of ${about.cell}`),
      h('div', { class: 'tiles' }, ...this.tiles.map((tile) => tile.element)),
      h('div', { class: 'charts' }, ...this.charts.map((chart) => chart.element)),
      h('div', { class: 'heats' }, ...this.heats.map((heat) => heat.element)));
  }

  makeTiles(charts, bounds) {
    const places = new Map();
    charts.flatMap((chart) => chart.lines.map((line) => ({ ...line, unit: chart.unit }))).forEach((line, index) => places.set(line.name, { ...line, index }));
    const line = (title, name) => new Tile(title, (history) => {
      const { index, rate, unit } = places.get(name);
      const values = history.line(index, rate).map(({ value }) => value);
      const last = values[values.length - 1];
      return { values, label: last === undefined ? '–' : text(last, unit, rate) + (rate && unit !== 'bytes' ? '/s' : '') };
    });
    const served = new Tile('Served, p99', (history) => {
      const values = history.heat(0).map(({ pairs }) => quantileOf(pairs, bounds, 0.99));
      const last = values.findLast((value) => value > 0);
      return { values, label: last === undefined ? '–' : text(last, 'ns') };
    });
    const hits = new Tile('Cache hits', (history) => {
      const [hit, missed] = ['hits', 'misses'].map((name) => history.line(places.get(name).index, false));
      const shares = hit.map(({ value }, at) => (value + missed[at].value ? (100 * value) / (value + missed[at].value) : null));
      const last = shares.findLast((share) => share !== null);
      return { values: shares.map((share) => share ?? 0), label: last === undefined ? '–' : `${last.toFixed(1)} %` };
    });
    return [line('Calls', 'calls'), line('Sent', 'sent'), line('Received', 'received'), served, line('Busy workers', 'busy'), line('Calls waiting', 'waiting'), hits];
  }

  async look() {
    await this.context.history.look();
    for (const part of [...this.tiles, ...this.charts, ...this.heats]) part.show(this.context.history);
  }

  draw() { for (const part of [...this.tiles, ...this.charts, ...this.heats]) part.show(this.context.history); }
}

function quantileOf(pairs, bounds, share) {
  let sum = 0;
  for (let at = 1; at < pairs.length; at += 2) sum += pairs[at];
  let seen = 0;
  for (let at = 0; at < pairs.length; at += 2) {
    seen += pairs[at + 1];
    if (seen >= share * sum) return bounds[pairs[at]] || 2 ** 36;
  }
  return 0;
}

// A view of any table.
export class TableView {
  constructor(context, table, options = {}) {
    Object.assign(this, { context, table, path: options.path ?? `tables/${table.name}` });
    const title = options.title ?? table.title;
    this.grid = new FigureTable({ name: table.name, labels: table.labels, columns: columnsOf(table), link: options.link ?? linkOf(table), caption: `${title}: ${table.about}` });
    this.filter = h('input', { type: 'search', placeholder: 'Filter', 'aria-label': `Filter ${title}`, title: 'Filter (/)', on: { input: () => { this.grid.filter = this.filter.value; this.draw(); } } });
    this.span = h('button', { type: 'button', class: 'quiet span', 'aria-pressed': 'false', title: 'Per second, or totals since the start (a)', on: { click: () => this.toggleSpan() } });
    this.columns = h('button', { type: 'button', class: 'quiet', 'aria-pressed': 'false', title: 'Also show columns that are all zero', on: { click: () => this.toggleColumns() } }, 'All columns');
    this.when = h('span', { class: 'faint' });
    this.body = h('div');
    this.absolute = context.absolute;
    this.element = h('section', { class: 'view' },
      h('div', { class: 'title' }, h(options.heading ?? 'h1', {}, title), h('span', { class: 'faint' }, options.about ?? table.about), h('span', { class: 'spring' }),
        table.labels.length > 0 && this.filter, this.span, this.columns),
      h('p', { class: 'faint foot' }, this.when), this.body);
    this.sayMode();
  }

  toggleSpan() { this.absolute = !this.absolute; this.context.absolute = this.absolute; this.sayMode(); this.draw(); }

  toggleColumns() { this.grid.all = !this.grid.all; this.sayMode(); this.draw(); }

  sayMode() {
    say(this.span, this.absolute ? 'Since the start' : 'Per second');
    this.span.setAttribute('aria-pressed', String(this.absolute));
    this.columns.setAttribute('aria-pressed', String(this.grid.all));
  }

  async look() {
    let told;
    try {
      told = await get(this.path);
    } catch (error) {
      if (!(error instanceof Refused) || error.status !== 401) throw error;
      this.body.replaceChildren(locked(this.table.title));
      this.element.classList.add('is-locked');
      return;
    }
    const now = { at: told.now_ms, rows: rowsOf(told) };
    if (this.now) this.before = this.now;
    this.now = now;
    if (!this.grid.element.isConnected) this.body.replaceChildren(this.grid.element);
    this.element.classList.remove('is-locked');
    this.draw();
  }

  draw() {
    if (!this.now) return;
    const isRate = !this.absolute && this.before !== undefined;
    const seconds = isRate ? Math.max(0.001, (this.now.at - this.before.at) / 1000) : undefined;
    this.grid.show(isRate ? since(this.now.rows, this.before.rows, this.table.figures) : this.now.rows, seconds);
    say(this.when, isRate ? `in the last ${seconds.toFixed(1)} s` : this.absolute ? 'since the server’s start' : 'since the server’s start; rates follow with the next sample');
  }

  forget() { this.before = undefined; this.now = undefined; }

  back() {
    if (this.filter.value === '') return false;
    this.filter.value = '';
    this.grid.filter = '';
    this.draw();
    return true;
  }
}

function linkOf(table) {
  if (table.name !== 'volumes') return undefined;
  return (row) => (row.labels[0] && row.labels[0] !== '0' ? `#/volume/${encodeURIComponent(row.labels[0])}` : undefined);
}
