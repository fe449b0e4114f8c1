// Figures of a server: columns from its declarations, differences between two samples, percentiles.

import { words } from './format.js';

const PER_POWER = 8;

// Returns the greatest value of a bucket, like events::upper_bound.
function upperBound(index) {
  if (index < PER_POWER) return index;
  const power = Math.floor(index / PER_POWER) - 1;
  return (PER_POWER + (index % PER_POWER) + 1) * 2 ** power - 1;
}

function count(numbers) {
  let sum = 0;
  for (let at = 3; at < numbers.length; at += 2) sum += numbers[at];
  return sum;
}

// Returns the quantile for `permille`. `numbers` are the sum, the maximum, and pairs of bucket and count.
export function quantile(numbers, permille) {
  const wanted = Math.max(1, Math.ceil((count(numbers) * permille) / 1000));
  let seen = 0;
  for (let at = 2; at + 1 < numbers.length; at += 2) {
    seen += numbers[at + 1];
    if (seen >= wanted) return Math.min(upperBound(numbers[at]), numbers[1]);
  }
  return numbers[1] ?? 0;
}

function histogramColumns(figure, index) {
  const column = (title, get) => ({ title, group: words(figure.name), what: figure.what, unit: figure.unit, grows: false, get: (row) => get(row.values[index]) });
  return [
    column('mean', (numbers) => (count(numbers) ? Math.floor(numbers[0] / count(numbers)) : 0)),
    column('p50', (numbers) => quantile(numbers, 500)),
    column('p90', (numbers) => quantile(numbers, 900)),
    column('p99', (numbers) => quantile(numbers, 990)),
    column('max', (numbers) => numbers[1] ?? 0),
  ];
}

// Returns the columns of a table: one for a number, one for each value of a label, five for a distribution.
export function columnsOf(table) {
  return table.figures.flatMap((figure, index) => {
    if (figure.kind === 'histogram') return histogramColumns(figure, index);
    const base = { what: figure.what, unit: figure.unit, grows: figure.kind === 'counter', isDate: ['started', 'began'].includes(figure.name) };
    if (figure.values.length === 0) return [{ ...base, title: words(figure.name), group: '', get: (row) => row.values[index][0] }];
    return figure.values.map((value, place) => ({ ...base, title: value, group: words(figure.name), get: (row) => row.values[index][place] }));
  }).map((column, number) => ({ ...column, id: number }));
}

export const rowsOf = (told) => told.rows.map(([labels, values]) => ({ key: labels.join('\u0000'), labels, values }));

function sinceHistogram(now, before) {
  const old = new Map();
  for (let at = 2; at < before.length; at += 2) old.set(before[at], before[at + 1]);
  const news = [];
  for (let at = 2; at < now.length; at += 2) {
    const came = now[at + 1] - (old.get(now[at]) ?? 0);
    if (came > 0) news.push(now[at], came);
  }
  const max = news.length ? Math.min(upperBound(news[news.length - 2]), now[1]) : 0;
  return [now[0] - before[0], max, ...news];
}

// Like events::Longest: the all-time maximum, the current period, and the maxima of the last periods, indexed by period
// number modulo their count.
export function sinceLongest(now, before) {
  const [ever, period, ...lately] = now;
  if (!period || ever > before[0]) return now;
  const isNew = (at) => at > 0 && at >= before[1];
  const news = lately.map((_, back) => period - back).filter(isNew).map((at) => lately[at % lately.length]);
  return [Math.max(0, ...news), period, ...lately];
}

function sinceRow(now, before, figures) {
  return { ...now, values: figures.map(({ kind }, index) => {
    const [new_, old] = [now.values[index], before.values[index]];
    if (kind === 'histogram') return sinceHistogram(new_, old);
    if (kind === 'longest') return sinceLongest(new_, old);
    return kind === 'counter' ? new_.map((value, place) => value - old[place]) : new_;
  }) };
}

const isPast = (now, before, figures) => figures.every(({ kind }, index) => kind !== 'counter' || now.values[index].every((value, place) => value >= before.values[index][place]));

// Returns the differences between two samples. For a row that was in `(others)` before, the previous values are
// unknown; it is left out until the next sample.
export function since(now, before, figures) {
  const old = new Map(before.map((row) => [row.key, row]));
  const hadOthers = old.has('');
  return now.flatMap((row) => {
    const past = old.get(row.key);
    if (past === undefined) return hadOthers ? [] : [row];
    return isPast(row, past, figures) ? [sinceRow(row, past, figures)] : [row];
  });
}
