// Human-readable numbers: three significant digits and a unit. Times and bytes are formatted as in `cellar stat`.

const whole = new Intl.NumberFormat('en-US', { maximumFractionDigits: 0 });

function three(value) {
  if (value >= 1000) return whole.format(value);
  return value.toFixed(value < 10 ? 2 : value < 100 ? 1 : 0);
}

function scaled(value, units, factor) {
  let index = 0;
  while (value >= factor * 0.9995 && index < units.length - 1) { value /= factor; index += 1; }
  return [index === 0 ? whole.format(value) : three(value), units[index]];
}

// Each of these functions returns the digits and the unit.
export const exact = (value) => [whole.format(value), ''];
export const bytes = (value) => scaled(value, ['B', 'KiB', 'MiB', 'GiB', 'TiB', 'PiB', 'EiB'], 1024);
export function time(ns) {
  if (ns === 0) return ['–', ''];
  if (ns < 1000) return [whole.format(ns), 'ns'];
  if (ns < 1e6) return [three(ns / 1e3), 'µs'];
  if (ns < 1e9) return [three(ns / 1e6), 'ms'];
  if (ns < 120e9) return [three(ns / 1e9), 's'];
  if (ns < 7200e9) return [three(ns / 60e9), 'min'];
  return ns < 172800e9 ? [three(ns / 3600e9), 'h'] : [three(ns / 86400e9), 'd'];
}

// Formats a number per second; small ones have fractions.
export function rate(value) {
  if (value === 0) return ['0', ''];
  if (value < 1000) return [value < 0.01 ? '<0.01' : three(value).replace(/(\.\d*?)0+$/, '$1').replace(/\.$/, ''), ''];
  return scaled(value, ['', 'k', 'M', 'G', 'T'], 1000);
}

export function number(value, unit, isRate) {
  if (unit === 'bytes') { const [digits, of] = bytes(value); return [digits, isRate ? `${of}/s` : of]; }
  if (unit === 'ns') return time(value);
  return isRate ? rate(value) : exact(value);
}

export const text = (value, unit, isRate) => number(value, unit, isRate).join(' ').trim();

const two = (value) => String(value).padStart(2, '0');
export function clock(ms) {
  const date = new Date(ms);
  return `${two(date.getHours())}:${two(date.getMinutes())}:${two(date.getSeconds())}`;
}
export function day(seconds) {
  if (!seconds) return '–';
  const date = new Date(seconds * 1000);
  return `${date.getFullYear()}-${two(date.getMonth() + 1)}-${two(date.getDate())} ${clock(seconds * 1000)}`;
}
export function ago(ms) {
  const seconds = Math.max(0, Math.round(ms / 1000));
  if (seconds < 120) return `${seconds} s`;
  if (seconds < 7200) return `${Math.round(seconds / 60)} min`;
  return seconds < 172800 ? `${Math.round(seconds / 3600)} h` : `${Math.round(seconds / 86400)} d`;
}
export const words = (name) => name.replaceAll('_', ' ');
