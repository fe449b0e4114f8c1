// A flame graph from folded stacks: each box is a function, below its caller; its width is its share of the time.
// One box is selected. Keys move the selection from box to box, as in a tree; boxes too narrow to see are not drawn.

import { h, s, say } from './dom.js';
import { text } from './format.js';

const DEPTH_MAX = 160;
const NARROWEST = 0.0012;
const LEVEL_PX = 19;

// Parses folded stacks (`a;b;c 12`, in microseconds) into a tree with children by name.
export function treeOf(folded) {
  const root = { name: 'all', value: 0, own: 0, children: new Map(), above: null };
  for (const line of folded.split('\n')) {
    const at = line.lastIndexOf(' ');
    const value = Number(line.slice(at + 1));
    if (at < 1 || !(value > 0)) continue;
    root.value += value;
    let node = root;
    for (const name of line.slice(0, at).split(';')) {
      if (!node.children.has(name)) node.children.set(name, { name, value: 0, own: 0, children: new Map(), above: node });
      node = node.children.get(name);
      node.value += value;
    }
    node.own += value;
  }
  return root;
}

// Returns the functions with their own time and their total time including callees; recursive calls count once.
export function functionsOf(root) {
  const times = new Map();
  const visit = (node, active) => {
    if (!times.has(node.name)) times.set(node.name, { name: node.name, own: 0, total: 0 });
    const time = times.get(node.name);
    time.own += node.own;
    const isInner = active.has(node.name);
    if (!isInner) { time.total += node.value; active.add(node.name); }
    for (const child of node.children.values()) visit(child, active);
    if (!isInner) active.delete(node.name);
  };
  for (const child of root.children.values()) visit(child, new Set());
  return [...times.values()].sort((a, b) => b.own - a.own || b.total - a.total || (a.name < b.name ? -1 : 1));
}

const widest = (node) => [...node.children.values()].reduce((best, child) => (best && best.value >= child.value ? best : child), null);
const inOrder = (node) => [...node.children.values()].sort((a, b) => (a.name < b.name ? -1 : 1));

export class Flame {
  constructor(root, kind) {
    this.root = root;
    this.top = root;
    this.current = root;
    this.picture = s('svg', { class: `flame flame-${kind}`, tabindex: '0', role: 'application', 'aria-roledescription': 'flame graph', 'aria-describedby': 'flame-keys',
      on: { keydown: (event) => this.key(event), click: (event) => this.choose(event), dblclick: () => this.zoom(this.current), pointermove: (event) => this.hover(event) } });
    this.told = h('p', { class: 'flame-told number', role: 'status' });
    this.search = h('input', { type: 'search', placeholder: 'Find a function', 'aria-label': 'Find a function', title: 'Find a function (/)', on: { input: () => this.draw() } });
    this.out = h('button', { type: 'button', class: 'quiet', title: 'Show all (Backspace)', on: { click: () => this.zoom(this.root) } }, 'All');
    this.into = h('button', { type: 'button', class: 'quiet', title: 'Zoom into the selected function (Enter)', on: { click: () => this.zoom(this.current) } }, 'Zoom in');
    this.element = h('div', { class: 'panel stack' }, h('div', { class: 'title' }, this.search, this.into, this.out, this.found = h('span', { class: 'faint' })), this.told, this.picture,
      h('p', { class: 'faint small', id: 'flame-keys' }, 'Arrow keys: to the caller, to callees, to neighbours. Enter: zoom in. Backspace: show all.'));
    this.draw();
  }

  zoom(node) { this.top = node; this.current = node; this.draw(); }

  choose(event) {
    const node = this.nodes.get(event.target.closest('svg.box'));
    if (node) { this.current = node; this.mark(); }
  }

  hover(event) {
    const node = this.nodes.get(event.target.closest('svg.box'));
    if (node) this.tell(node);
  }

  key(event) {
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    const beside = (step) => {
      if (this.current === this.top) return null;
      const row = inOrder(this.current.above);
      return row[row.indexOf(this.current) + step];
    };
    const to = { ArrowDown: () => widest(this.current), ArrowUp: () => (this.current === this.top ? null : this.current.above), ArrowLeft: () => beside(-1), ArrowRight: () => beside(1), Home: () => this.top }[event.key];
    if (to) { this.current = to() ?? this.current; this.mark(); }
    else if (event.key === 'Enter') this.zoom(this.current);
    else if (event.key === 'Backspace') this.zoom(this.root);
    else return;
    event.preventDefault();
    event.stopPropagation();
  }

  draw() {
    this.nodes = new Map();
    const wanted = this.search.value.toLowerCase();
    const boxes = [];
    let levels = 0;
    let sum = 0;
    const place = (node, left, depth, isCounted) => {
      const width = node.value / this.top.value;
      const isFound = wanted !== '' && node.name.toLowerCase().includes(wanted);
      if (isFound && !isCounted) sum += node.value;
      if (depth >= DEPTH_MAX) return;
      if (width >= NARROWEST) { boxes.push(this.box(node, left, width, depth, isFound)); levels = Math.max(levels, depth + 1); }
      let from = left;
      for (const child of inOrder(node)) { place(child, from, depth + 1, isCounted || isFound); from += child.value / this.top.value; }
    };
    place(this.top, 0, 0, false);
    this.picture.replaceChildren(...boxes);
    this.picture.style.setProperty('height', `${levels * LEVEL_PX}px`);
    this.out.disabled = this.top === this.root;
    say(this.found, wanted === '' ? '' : `${share(sum, this.root.value)} of all in matches`);
    this.mark();
  }

  box(node, left, width, depth, isFound) {
    const box = s('svg', { class: `box hue-${hue(node.name)}${isFound ? ' found' : ''}`, x: `${100 * left}%`, y: depth * LEVEL_PX, width: `${100 * width}%`, height: LEVEL_PX - 1 },
      s('rect', { width: '100%', height: '100%' }), width > 0.015 && s('text', { x: 4, y: 13 }, node.name));
    this.nodes.set(box, node);
    return box;
  }

  mark() {
    for (const [box, node] of this.nodes) box.classList.toggle('current', node === this.current);
    this.into.disabled = this.current === this.top;
    this.tell(this.current);
  }

  tell(node) { say(this.told, `${node.name}: ${text(node.value * 1000, 'ns')}, ${share(node.value, this.root.value)} of all`); }
}

const share = (part, all) => `${((100 * part) / all).toFixed(1)} %`;

// Returns the hue of a function: functions of the same library have the same colour.
function hue(name) {
  let sum = 0;
  for (const letter of name.replace(/^<+/, '').split('::')[0]) sum = (sum * 31 + letter.charCodeAt(0)) % 6;
  return sum;
}
