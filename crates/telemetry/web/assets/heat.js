// A distribution over time: a column for each sample, a row for each range of durations. Cells with higher counts are
// darker (lighter in the dark theme). Lightness in OKLab is linear in the logarithm of the count, so that equal steps
// look equal.

import { h, say, colour } from './dom.js';
import { Plot, drawTimes, drawCross, nearest, spanOf } from './chart.js';
import { text, exact, clock } from './format.js';

const STEPS = 64;

// Converts OKLCH to sRGB, after Björn Ottosson.
function oklch(lightness, chroma, hue) {
  const [a, b] = [chroma * Math.cos((hue * Math.PI) / 180), chroma * Math.sin((hue * Math.PI) / 180)];
  const l = (lightness + 0.3963377774 * a + 0.2158037573 * b) ** 3;
  const m = (lightness - 0.1055613458 * a - 0.0638541728 * b) ** 3;
  const s = (lightness - 0.0894841775 * a - 1.291485548 * b) ** 3;
  const linear = [
    4.0767416621 * l - 3.3077115913 * m + 0.2309699292 * s,
    -1.2684380046 * l + 2.6097574011 * m - 0.3413193965 * s,
    -0.0041960863 * l - 0.7034186147 * m + 1.707614701 * s,
  ];
  const channel = (value) => Math.round(255 * Math.min(1, Math.max(0, value <= 0.0031308 ? 12.92 * value : 1.055 * value ** (1 / 2.4) - 0.055)));
  return `rgb(${linear.map(channel).join(' ')})`;
}

function palette(isDark) {
  return Array.from({ length: STEPS }, (_, step) => {
    const part = step / (STEPS - 1);
    return isDark
      ? oklch(0.3 + 0.62 * part, 0.09 + 0.07 * Math.sin(Math.PI * part), 275 - 190 * part)
      : oklch(0.92 - 0.62 * part, 0.05 + 0.1 * Math.sin(Math.PI * part), 85 + 190 * part);
  });
}

const isDark = () => {
  const [red, green, blue] = colour('--panel').match(/[\d.]+/g).map(Number);
  return red + green + blue < 384;
};

export class Heat {
  constructor(heat, index, bounds) {
    Object.assign(this, { heat, index, bounds, columns: [] });
    this.plot = new Plot(200, heat.title);
    this.plot.draw = () => this.draw();
    this.readout = h('span', { class: 'number faint readout' });
    this.scale = h('canvas', { class: 'scale', 'aria-hidden': 'true' });
    this.most = h('span', { class: 'number' });
    const key = h('span', { class: 'scale-key faint' }, '1', this.scale, this.most);
    this.empty = h('p', { class: 'empty' }, 'Nothing in the last 15 minutes.');
    this.element = h('section', { class: 'panel chart heat', data: { heat: heat.name } },
      h('div', { class: 'legend' }, h('h2', {}, heat.title), key, this.readout), h('p', { class: 'about' }, heat.about), this.plot.canvas, this.empty);
  }

  show(history) {
    this.columns = history.heat(this.index);
    this.draw();
  }

  // Returns the range of rows that have values, extended on both sides to at least ten rows where possible.
  rows() {
    let [least, most] = [Infinity, -Infinity];
    for (const { pairs } of this.columns) {
      if (pairs.length) { least = Math.min(least, pairs[0]); most = Math.max(most, pairs[pairs.length - 2]); }
    }
    if (least > most) return null;
    while (most - least < 9) { if (least > 0) least -= 1; if (most < this.bounds.length - 1) most += 1; }
    return { least, most };
  }

  draw() {
    const rows = this.rows();
    this.empty.hidden = rows !== null;
    this.plot.canvas.hidden = rows === null;
    const context = rows && this.plot.begin();
    if (!context) return;
    const to = this.columns[this.columns.length - 1].at;
    const place = { left: 52, right: this.plot.width - 4, top: 4, bottom: this.plot.height - 20, from: to - spanOf(this.columns[0].at, to), to };
    Object.assign(this.plot, { left: place.left, right: place.right, step: ((place.right - place.left) * 2000) / (to - place.from) });
    const greatest = Math.max(1, ...this.columns.flatMap(({ pairs }) => pairs.filter((_, at) => at % 2 === 1)));
    const colours = palette(isDark());
    this.cells(context, place, rows, greatest, colours);
    this.axis(context, place, rows);
    drawTimes(context, place);
    this.tell(context, place, rows);
    this.legend(greatest, colours);
  }

  cells(context, { left, right, top, bottom, from, to }, { least, most }, greatest, colours) {
    const width = Math.max(1, ((right - left) * 2000) / (to - from));
    const height = (bottom - top) / (most - least + 1);
    for (const { at, pairs } of this.columns) {
      const x = left + ((right - left) * (at - from)) / (to - from) - width;
      if (at < from) continue;
      for (let pair = 0; pair < pairs.length; pair += 2) {
        const part = greatest > 1 ? Math.log(pairs[pair + 1]) / Math.log(greatest) : 1;
        context.fillStyle = colours[Math.round(part * (STEPS - 1))];
        context.fillRect(Math.max(left, x), bottom - height * (pairs[pair] - least + 1), width + 0.6, height - 0.5);
      }
    }
  }

  axis(context, { left, top, bottom, right }, { least, most }) {
    const height = (bottom - top) / (most - least + 1);
    context.textAlign = 'right';
    context.textBaseline = 'middle';
    let last = Infinity;
    for (let row = least; row < most; row += 1) {
      const y = Math.round(bottom - height * (row - least + 1)) + 0.5;
      if (!this.bounds[row] || row % 2 === 1 || last - y < 26) continue;
      last = y;
      context.strokeStyle = colour('--grid');
      context.globalAlpha = 0.5;
      context.beginPath();
      context.moveTo(left, y);
      context.lineTo(right, y);
      context.stroke();
      context.globalAlpha = 1;
      context.fillStyle = colour('--muted');
      context.fillText(text(this.bounds[row], 'ns'), left - 8, y);
    }
  }

  // Describes the column under the cross-hair, or the last one.
  tell(context, { left, right, top, bottom, from, to }, rows) {
    const pointed = this.plot.at === null ? null : from + ((to - from) * (this.plot.at - left)) / (right - left);
    const column = pointed === null ? this.columns[this.columns.length - 1] : nearest(this.columns, pointed);
    if (pointed !== null) drawCross(context, left + ((right - left) * (column.at - from)) / (to - from), top, bottom);
    const counts = column.pairs.filter((_, at) => at % 2 === 1);
    const sum = counts.reduce((total, count) => total + count, 0);
    const when = pointed === null ? 'last 2 s' : clock(column.at);
    const words = sum === 0 ? `${when}: none` : `${when}: ${exact(sum)[0]}, half within ${this.within(column.pairs, sum, 0.5)}, 99 % within ${this.within(column.pairs, sum, 0.99)}`;
    say(this.readout, words);
    this.plot.canvas.setAttribute('aria-label', `${this.heat.title}. ${words}`);
  }

  within(pairs, sum, share) {
    let seen = 0;
    for (let pair = 0; pair < pairs.length; pair += 2) {
      seen += pairs[pair + 1];
      if (seen >= share * sum) return this.bounds[pairs[pair]] ? text(this.bounds[pairs[pair]], 'ns') : 'more than 69 s';
    }
    return '–';
  }

  legend(greatest, colours) {
    say(this.most, exact(greatest)[0]);
    this.scale.width = STEPS;
    this.scale.height = 1;
    const context = this.scale.getContext('2d');
    colours.forEach((one, step) => { context.fillStyle = one; context.fillRect(step, 0, 1, 1); });
  }
}
