// Line charts of the last quarter of an hour, on a canvas; the numbers are shown next to it as text.

import { h, say, colour } from './dom.js';
import { text, clock } from './format.js';

// A canvas as wide as its container, with a cross-hair that follows the pointer and arrow keys.
export class Plot {
  constructor(height, label) {
    this.height = height;
    this.canvas = h('canvas', { class: 'plot', tabindex: '0', role: 'img', 'aria-label': label });
    this.canvas.style.height = `${height}px`;
    this.at = null;
    new ResizeObserver(() => this.draw()).observe(this.canvas);
    this.canvas.addEventListener('pointermove', (event) => this.point(event.offsetX));
    this.canvas.addEventListener('pointerleave', () => this.point(null));
    this.canvas.addEventListener('blur', () => this.point(null));
    this.canvas.addEventListener('keydown', (event) => {
      const step = { ArrowLeft: -1, ArrowRight: 1 }[event.key];
      if (step === undefined) return;
      event.preventDefault();
      event.stopPropagation();
      const from = this.at ?? this.right ?? 0;
      this.point(Math.min(Math.max(from + step * (this.step ?? 4), this.left ?? 0), this.right ?? 0));
    });
  }

  point(x) {
    this.at = x;
    this.draw();
  }

  // Returns a cleared drawing context, or null while the canvas has no width.
  begin() {
    const width = this.canvas.clientWidth;
    if (width === 0) return null;
    const ratio = window.devicePixelRatio || 1;
    const [w, t] = [Math.round(width * ratio), Math.round(this.height * ratio)];
    if (this.canvas.width !== w || this.canvas.height !== t) { this.canvas.width = w; this.canvas.height = t; }
    const context = this.canvas.getContext('2d');
    context.setTransform(ratio, 0, 0, ratio, 0, 0);
    context.clearRect(0, 0, width, this.height);
    context.font = `11px ${getComputedStyle(document.body).fontFamily}`;
    this.width = width;
    return context;
  }
}

// Time spans of a chart in minutes, with the number of steps on the axis. The shortest that covers the data is used.
const SPANS_MIN = [[2, 4], [3, 3], [5, 5], [10, 5], [15, 5]];

export function spanOf(first, last) {
  const minutes = (last - first) / 60000;
  const [span] = SPANS_MIN.find(([most]) => minutes <= most) ?? SPANS_MIN[SPANS_MIN.length - 1];
  return span * 60000;
}

// Draws the labels of the time axis.
export function drawTimes(context, { left, right, bottom, from, to }) {
  context.fillStyle = colour('--muted');
  context.textBaseline = 'top';
  const steps = SPANS_MIN.find(([most]) => (to - from) / 60000 <= most)[1];
  // On a phone there is not enough room for every label.
  const words = context.measureText('−15 min').width * 1.5 + 8;
  const every = Math.ceil((words * steps) / Math.max(right - left, 1));
  for (let step = steps % every; step <= steps; step += every) {
    const seconds = ((to - from) * (steps - step)) / steps / 1000;
    context.textAlign = step === 0 ? 'left' : step === steps ? 'right' : 'center';
    const mark = seconds % 60 === 0 ? `−${seconds / 60} min` : `−${seconds} s`;
    context.fillText(step === steps ? 'now' : mark, left + ((right - left) * step) / steps, bottom + 5);
  }
}

export function drawCross(context, x, top, bottom) {
  context.strokeStyle = colour('--muted');
  context.lineWidth = 1;
  context.beginPath();
  context.moveTo(Math.round(x) + 0.5, top);
  context.lineTo(Math.round(x) + 0.5, bottom);
  context.stroke();
}

// Rounds up to 1, 2 or 5 times a power of ten, or to a power of two for bytes.
function ceiling(value, unit) {
  if (unit === 'bytes') return 2 ** Math.ceil(Math.log2(Math.max(value, 1024)));
  if (value <= 0) return 1;
  const power = 10 ** Math.floor(Math.log10(value));
  return [1, 2, 5, 10].map((times) => times * power).find((bound) => bound >= value);
}

const COLOURS = ['--line-1', '--line-2'];

export class Chart {
  constructor(chart, first) {
    this.chart = chart;
    this.first = first;
    this.series = chart.lines.map(() => []);
    this.plot = new Plot(132, chart.title);
    this.plot.draw = () => this.draw();
    this.values = chart.lines.map(() => h('b', { class: 'number' }, '–'));
    const legend = chart.lines.map((line, index) => h('span', { class: `key key-${index + 1}`, data: { line: line.name } }, h('i', {}), line.title, ' ', this.values[index]));
    this.when = h('span', { class: 'faint' });
    this.element = h('section', { class: 'panel chart' }, h('div', { class: 'legend' }, h('h2', {}, chart.title), ...legend, this.when), this.plot.canvas);
  }

  show(history) {
    this.series = this.chart.lines.map((line, index) => history.line(this.first + index, line.rate));
    this.draw();
  }

  label(value, line) { return text(value, this.chart.unit, line.rate) + (line.rate && this.chart.unit !== 'bytes' ? '/s' : ''); }

  draw() {
    const context = this.plot.begin();
    const last = this.series[0][this.series[0].length - 1];
    if (!context) return;
    const to = last?.at ?? Date.now();
    const from = to - spanOf(this.series[0][0]?.at ?? to, to);
    const place = { left: 52, right: this.plot.width - 4, top: 8, bottom: this.plot.height - 20, from, to };
    Object.assign(this.plot, { left: place.left, right: place.right, step: ((place.right - place.left) * 2000) / (to - from) });
    const most = Math.max(0, ...this.series.flat().map(({ value }) => value));
    place.most = ceiling(most, this.chart.unit);
    this.axes(context, place);
    this.series.forEach((points, index) => this.line(context, points.filter(({ at }) => at >= from), index, place));
    this.tell(context, place);
    const now = this.chart.lines.map((line, index) => `${line.title} ${this.values[index].textContent}`).join(', ');
    this.plot.canvas.setAttribute('aria-label', `${this.chart.title}: ${now}; most ${this.label(most, this.chart.lines[0])} in the last 15 minutes`);
  }

  axes(context, { left, right, top, bottom, from, to, most }) {
    context.textAlign = 'right';
    context.textBaseline = 'middle';
    for (const part of [0, 0.5, 1]) {
      const y = Math.round(bottom - (bottom - top) * part) + 0.5;
      context.strokeStyle = colour('--grid');
      context.beginPath();
      context.moveTo(left, y);
      context.lineTo(right, y);
      context.stroke();
      context.fillStyle = colour('--muted');
      context.fillText(text(most * part, this.chart.unit, this.chart.unit !== 'bytes'), left - 8, y);
    }
    drawTimes(context, { left, right, bottom, from, to });
  }

  line(context, points, index, { left, right, top, bottom, from, to, most }) {
    if (points.length === 0) return;
    const x = (at) => left + ((right - left) * (at - from)) / (to - from);
    const y = (value) => bottom - ((bottom - top) * value) / most;
    context.beginPath();
    points.forEach(({ at, value }, number) => (number === 0 ? context.moveTo(x(at), y(value)) : context.lineTo(x(at), y(value))));
    context.strokeStyle = colour(COLOURS[index]);
    context.lineWidth = 1.5;
    context.lineJoin = 'round';
    context.stroke();
    if (index > 0) return;
    context.lineTo(x(points[points.length - 1].at), bottom);
    context.lineTo(x(points[0].at), bottom);
    context.globalAlpha = 0.12;
    context.fillStyle = colour(COLOURS[index]);
    context.fill();
    context.globalAlpha = 1;
  }

  // Shows the latest values of the lines, or those under the cross-hair.
  tell(context, { left, right, top, bottom, from, to }) {
    const pointed = this.plot.at === null ? null : from + ((to - from) * (this.plot.at - left)) / (right - left);
    const points = this.series.map((series) => (pointed === null ? series[series.length - 1] : nearest(series, pointed)));
    points.forEach((point, index) => say(this.values[index], point ? this.label(point.value, this.chart.lines[index]) : '–'));
    if (pointed !== null && points[0]) drawCross(context, left + ((right - left) * (points[0].at - from)) / (to - from), top, bottom);
    say(this.when, pointed !== null && points[0] ? `at ${clock(points[0].at)}` : '');
  }
}

export function nearest(series, at) {
  let best;
  for (const point of series) if (best === undefined || Math.abs(point.at - at) < Math.abs(best.at - at)) best = point;
  return best;
}

// Draws a small line without axes, for tiles and rows.
export function spark(canvas, values) {
  const ratio = window.devicePixelRatio || 1;
  const [width, height] = [canvas.clientWidth, canvas.clientHeight];
  if (width === 0) return;
  canvas.width = Math.round(width * ratio);
  canvas.height = Math.round(height * ratio);
  const context = canvas.getContext('2d');
  context.setTransform(ratio, 0, 0, ratio, 0, 0);
  const most = Math.max(...values, 0);
  if (values.length < 2) return;
  const x = (index) => (width * (index + canvas.points - values.length)) / (canvas.points - 1);
  const y = (value) => height - 1.5 - ((height - 3) * value) / (most || 1);
  context.beginPath();
  values.forEach((value, index) => (index === 0 ? context.moveTo(x(index), y(value)) : context.lineTo(x(index), y(value))));
  context.strokeStyle = colour('--line-1');
  context.lineWidth = 1.25;
  context.stroke();
}

export function sparkCanvas(points, className) {
  const canvas = h('canvas', { class: className, 'aria-hidden': 'true' });
  canvas.points = points;
  return canvas;
}
