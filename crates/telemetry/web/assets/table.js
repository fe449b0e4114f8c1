// A table of figures that can be sorted by any column and filtered; rows stay in place while their numbers change.

import { h, say } from './dom.js';
import { number, day } from './format.js';
import { spark, sparkCanvas } from './chart.js';

const ROWS_SHOWN = 200;
const SPARK_POINTS = 45;
// Texts up to this length, such as times, kinds and addresses, are neither wrapped nor cut.
const SHORT_LETTERS = 24;

const isNothing = (rows, column) => rows.every((row) => !column.get(row));

export class FigureTable {
  // `link` returns the target of a row, if it has one.
  constructor({ name, labels, columns, link, caption, rowsShown }) {
    Object.assign(this, { name, labels, columns, link, rowsShown: rowsShown ?? ROWS_SHOWN });
    this.sort = { column: 0, down: true };
    this.filter = '';
    this.all = false;
    this.trs = new Map();
    this.trails = new Map();
    this.shown = '';
    this.head = h('thead');
    this.body = h('tbody');
    this.foot = h('p', { class: 'faint foot' });
    this.table = h('table', { data: { table: name } }, h('caption', { class: 'unseen' }, caption), this.head, this.body);
    this.box = h('div', { class: 'scroll', role: 'region', 'aria-label': caption, tabindex: '0' }, this.table);
    this.empty = h('p', { class: 'empty', hidden: true });
    this.element = h('div', { class: 'table' }, this.box, this.empty, this.foot);
    this.body.addEventListener('keydown', (event) => this.key(event));
  }

  // Shows `rows`, which cover an interval of `seconds`, or all time since the server's start if it is not set.
  show(rows, seconds) {
    Object.assign(this, { rows, seconds });
    if (seconds) this.trail(rows, seconds);
    this.columnsNow = this.all ? this.columns : this.columns.filter((column, index) => index === 0 || !isNothing(rows, column));
    const wanted = `${this.columnsNow.map((column) => column.id)} ${Boolean(seconds)}`;
    if (wanted !== this.shown) { this.shown = wanted; this.trs.clear(); this.body.replaceChildren(); }
    this.drawHead();
    this.drawBody();
  }

  trail(rows, seconds) {
    const now = new Map();
    for (const row of rows) {
      const trail = this.trails.get(row.key) ?? [];
      trail.push(this.columns[0].get(row) / seconds);
      if (trail.length > SPARK_POINTS) trail.shift();
      now.set(row.key, trail);
    }
    this.trails = now;
  }

  get hasTrails() { return Boolean(this.seconds) && this.columns[0].grows; }

  drawHead() {
    const groups = [];
    for (const column of this.columnsNow) {
      const last = groups[groups.length - 1];
      if (last && last.group === column.group) last.count += 1;
      else groups.push({ group: column.group, count: 1 });
    }
    const hasGroups = groups.some(({ group }) => group !== '');
    const signature = JSON.stringify([this.shown, this.sort]);
    if (signature === this.headDrawn) return;
    this.headDrawn = signature;
    const over = h('tr', { class: 'groups' }, ...this.labels.map(() => h('td')), this.hasTrails && h('td'),
      ...groups.map(({ group, count }) => h('th', { scope: 'colgroup', colspan: count, class: group ? 'group' : '' }, group)));
    const heads = this.columnsNow.map((column) => this.heading(column));
    const labels = this.labels.map((label) => h('th', { scope: 'col', class: 'label' }, label));
    const focused = document.activeElement?.dataset?.column;
    this.head.replaceChildren(...(hasGroups ? [over] : []), h('tr', {}, ...labels, this.hasTrails && h('th', { scope: 'col', class: 'label' }, 'recent'), ...heads));
    if (focused !== undefined && !document.activeElement?.dataset?.column) this.head.querySelector(`[data-column="${focused}"]`)?.focus();
  }

  heading(column) {
    const isSorted = this.sort.column === column.id;
    const order = isSorted ? (this.sort.down ? 'descending' : 'ascending') : 'none';
    const sortBy = () => { this.sort = { column: column.id, down: isSorted ? !this.sort.down : true }; this.show(this.rows, this.seconds); };
    const perSecond = this.seconds && column.grows && column.unit !== 'bytes' ? '/s' : '';
    return h('th', { scope: 'col', 'aria-sort': order, class: column.group ? 'grouped' : '' },
      h('button', { type: 'button', title: column.what, data: { column: column.id }, on: { click: sortBy } }, column.title + perSecond, h('span', { class: 'arrow', 'aria-hidden': 'true' }, isSorted ? (this.sort.down ? '▾' : '▴') : '')));
  }

  sorted() {
    const wanted = this.filter.toLowerCase();
    const rows = this.rows.filter((row) => wanted === '' || row.labels.some((label) => label.toLowerCase().includes(wanted)));
    const column = this.columns.find(({ id }) => id === this.sort.column) ?? this.columns[0];
    const sign = this.sort.down ? -1 : 1;
    return rows.sort((a, b) => sign * (column.get(a) - column.get(b)) || a.key.localeCompare(b.key));
  }

  drawBody() {
    const rows = this.sorted();
    const shown = rows.slice(0, this.rowsShown);
    const trs = shown.map((row) => this.row(row));
    trs.forEach((tr, index) => { if (this.body.children[index] !== tr) this.body.insertBefore(tr, this.body.children[index] ?? null); });
    while (this.body.children.length > trs.length) this.body.lastChild.remove();
    for (const key of [...this.trs.keys()]) if (!shown.some((row) => row.key === key)) this.trs.delete(key);
    this.box.hidden = rows.length === 0;
    this.empty.hidden = rows.length > 0;
    say(this.empty, this.filter ? `No name contains “${this.filter}”.` : 'Nothing counted yet.');
    say(this.foot, rows.length > shown.length ? `${shown.length} of ${rows.length} rows; use the filter to find the others.` : '');
  }

  row(row) {
    let kept = this.trs.get(row.key);
    if (!kept) { kept = this.newRow(row); this.trs.set(row.key, kept); }
    this.columnsNow.forEach((column, index) => this.fill(kept.cells[index], column, row));
    if (kept.spark && kept.spark.isConnected) spark(kept.spark, this.trails.get(row.key) ?? []);
    return kept.tr;
  }

  newRow(row) {
    const target = this.link?.(row);
    const isOthers = row.labels.length === 0 && this.labels.length > 0;
    const labels = this.labels.map((_, index) => {
      const label = isOthers ? (index === 0 ? '(others)' : '') : (row.labels[index] ?? '');
      const inner = target && index === 0 ? h('a', { href: target, tabindex: '-1' }, label) : label;
      return index === 0 ? h('th', { scope: 'row' }, inner) : h('td', { class: 'label' }, inner);
    });
    const cells = this.columnsNow.map(() => ({ digits: h('span', { class: 'digits' }), unit: h('span', { class: 'unit' }) }));
    const line = this.hasTrails && sparkCanvas(SPARK_POINTS, 'spark');
    const tds = cells.map((cell) => { cell.td = h('td', { class: 'figure' }, cell.digits, cell.unit); return cell.td; });
    const tr = h('tr', { tabindex: '0', data: { key: row.key } }, ...labels, line && h('td', { class: 'trail' }, line), ...tds);
    if (target) { tr.dataset.target = target; tr.classList.add('leads'); tr.addEventListener('click', () => { if (!String(getSelection())) location.hash = target; }); }
    return { tr, cells, spark: line };
  }

  fill(cell, column, row) {
    const value = column.get(row);
    const isRate = Boolean(this.seconds) && column.grows;
    const [digits, unit] = column.isDate ? [day(value / 1e9), ''] : number(isRate ? value / this.seconds : value, column.unit, isRate);
    say(cell.digits, digits);
    say(cell.unit, unit);
    cell.td.classList.toggle('zero', value === 0);
    cell.td.dataset.value = value;
    cell.td.dataset.figure = column.group ? `${column.group} ${column.title}` : column.title;
  }

  key(event) {
    const tr = event.target.closest('tr');
    if (!tr) return;
    const to = { ArrowDown: tr.nextElementSibling, j: tr.nextElementSibling, ArrowUp: tr.previousElementSibling, k: tr.previousElementSibling }[event.key];
    if (to) { event.preventDefault(); event.stopPropagation(); to.focus(); }
    if (event.key === 'Enter' && tr.dataset.target) { event.preventDefault(); location.hash = tr.dataset.target; }
  }
}

// Creates a table whose cells are texts, elements, or { digits, unit } pairs for numbers.
export function plainTable(name, caption, headings, rows) {
  const cell = (content, index) => {
    if (Array.isArray(content)) return h('td', { class: 'figure' }, h('span', { class: 'digits' }, content[0]), h('span', { class: 'unit' }, content[1]));
    const isShort = typeof content === 'string' && content.length <= SHORT_LETTERS;
    return h(index === 0 ? 'th' : 'td', { scope: index === 0 ? 'row' : undefined, class: isShort ? 'short' : undefined }, content);
  };
  const isNumber = (index) => rows.some((row) => Array.isArray(row[index]));
  return h('div', { class: 'scroll', role: 'region', 'aria-label': caption, tabindex: '0' }, h('table', { class: 'plain', data: { table: name } },
    h('caption', { class: 'unseen' }, caption),
    h('thead', {}, h('tr', {}, ...headings.map((heading, index) => h('th', { scope: 'col', class: isNumber(index) ? 'grouped' : 'label' }, heading)))),
    h('tbody', {}, ...rows.map((row) => h('tr', {}, ...row.map(cell))))));
}
