// The page itself: the current view, keyboard shortcuts, and the state of the connection to the server.

import { h, say, byId, note } from './dom.js';
import { get, post, History, Refused, Away } from './server.js';
import { Overview, TableView } from './views.js';
import { Inventory, Volume, Slow, Jobs, Probes } from './private.js';
import { Profiles } from './profile.js';
import { ago } from './format.js';

const PERIOD_MS = 2000;
const AGAIN_MS_MAX = 8000;

const context = { about: null, history: null, absolute: false };
let view = null;
let shownRoute = null;
let paused = false;
let awaySince = null;
let failures = 0;
let timer = null;
let isLooking = false;

// Address, name and constructor of each view, in the order of the digit keys.
function routes() {
  const tables = context.about.tables.map((table) => ({ route: `/table/${table.name}`, title: table.title, isPrivate: table.private, make: () => new TableView(context, table) }));
  const others = [
    { route: '/volumes', title: 'All volumes', isPrivate: true, make: () => new Inventory() },
    { route: '/slow', title: 'Slow calls', isPrivate: true, make: () => new Slow() },
    { route: '/profile', title: 'Profile', isPrivate: true, make: () => new Profiles(context) },
    { route: '/jobs', title: 'Jobs', isPrivate: true, make: () => new Jobs() },
    context.about.has_probes && { route: '/probes', title: 'Probes', isPrivate: true, make: () => new Probes() },
  ].filter(Boolean);
  return [{ route: '/', title: 'Overview', make: () => new Overview(context) }, ...tables, ...others];
}

function drawNav() {
  const current = location.hash.slice(1) || '/';
  const links = routes().map(({ route, title, isPrivate }, index) => {
    const isLocked = isPrivate && !context.about.signed_in;
    return h('li', {}, h('a', { href: `#${route}`, 'aria-current': route === current ? 'page' : undefined, 'aria-keyshortcuts': index < 9 ? String(index + 1) : undefined },
      title, isLocked && h('span', { class: 'lock', title: 'requires signing in' }, h('span', { class: 'unseen' }, ' (locked)'))));
  });
  byId('nav').replaceChildren(h('ul', {}, ...links));
}

function makeView(route) {
  const known = routes().find((one) => one.route === route);
  if (known) return { title: known.title, view: known.make() };
  const volume = /^\/volume\/(\d{1,10})$/.exec(route);
  if (volume) return { title: `Volume ${volume[1]}`, view: new Volume(context, volume[1]) };
  return { title: 'Not found', view: { element: h('div', { class: 'panel' }, note('This view does not exist', h('p', {}, h('a', { href: '#/' }, 'Back to the overview')))), look: async () => {}, draw: () => {} } };
}

async function showRoute() {
  const route = location.hash.slice(1) || '/';
  const code = /^\/login\/([0-9a-f]+)$/.exec(route);
  if (code) { await signIn(code[1]); return; }
  if (!context.about || route === shownRoute) return;
  const isFirst = shownRoute === null;
  shownRoute = route;
  const made = makeView(route);
  view = made.view;
  document.title = `${made.title} · ${context.about.cell}`;
  byId('main').replaceChildren(view.element);
  drawNav();
  openMenu(false);
  view.draw();
  if (!isFirst) { byId('main').focus({ preventScroll: true }); window.scrollTo(0, 0); }
  await look();
}

async function signIn(code) {
  // Removes the code from the address and from the browser's history before it is used.
  history.replaceState(null, '', '#/');
  try {
    await post('login', code);
    context.about = null;
    shownRoute = null;
    await look();
  } catch (error) {
    context.about ??= await get('about').catch(() => null);
    if (context.about) await showRoute();
    byId('main').prepend(h('div', { class: 'panel warn', role: 'alert' }, note('Not signed in', error.message)));
  }
}

async function signOut() {
  await post('logout', '').catch(() => {});
  context.about = null;
  shownRoute = null;
  await look();
}

async function greet() {
  const about = await get('about');
  const isOther = context.started !== undefined && context.started !== about.started_ms;
  context.started = about.started_ms;
  context.about = about;
  if (!context.history || isOther) context.history = new History(about.history);
  say(byId('cell'), about.cell);
  say(byId('server'), about.server);
  byId('server').title = about.version;
  byId('sign-out').hidden = !about.signed_in;
  if (isOther) shownRoute = null;
  if (isOther) view?.forget?.();
  drawNav();
}

// Updates everything that is shown.
async function look() {
  if (isLooking) return;
  isLooking = true;
  try {
    if (!context.about || awaySince !== null) await greet();
    isLooking = false;
    if (shownRoute === null) { await showRoute(); return; }
    isLooking = true;
    await view.look();
    isHere();
  } catch (error) {
    isAway(error);
  } finally {
    isLooking = false;
    plan();
  }
}

function plan() {
  clearTimeout(timer);
  if (paused || document.hidden) return;
  timer = setTimeout(look, awaySince === null ? PERIOD_MS : Math.min(PERIOD_MS * 2 ** Math.min(failures - 1, 4), AGAIN_MS_MAX));
}

function isHere() {
  awaySince = null;
  failures = 0;
  byId('down').hidden = true;
  document.body.classList.remove('is-away');
  byId('state').dataset.state = paused ? 'paused' : 'live';
  say(byId('state'), paused ? 'paused' : 'live');
}

function isAway(error) {
  if (!(error instanceof Away) && !(error instanceof Refused)) throw error;
  failures += 1;
  awaySince ??= Date.now();
  document.body.classList.add('is-away');
  byId('state').dataset.state = 'away';
  say(byId('state'), 'no answer');
  tellAway(error.message);
}

function tellAway(words) {
  const banner = byId('down');
  if (words) banner.dataset.words = words;
  const again = h('button', { type: 'button', class: 'quiet', on: { click: () => look() } }, 'Try now');
  const text = `${banner.dataset.words} (${ago(Date.now() - awaySince)}). The figures shown are out of date; the page retries by itself.`;
  if (banner.hidden || words) banner.replaceChildren(h('span', {}, text), again);
  else say(banner.firstChild, text);
  banner.hidden = false;
}

function setPaused(now) {
  paused = now;
  byId('pause').setAttribute('aria-pressed', String(paused));
  say(byId('pause'), paused ? 'Resume' : 'Pause');
  if (awaySince === null) { byId('state').dataset.state = paused ? 'paused' : 'live'; say(byId('state'), paused ? 'paused' : 'live'); }
  if (paused) clearTimeout(timer); else look();
}

const THEMES = ['auto', 'light', 'dark'];

function setTheme(theme) {
  if (theme === 'auto') delete document.documentElement.dataset.theme; else document.documentElement.dataset.theme = theme;
  try { localStorage.setItem('cellar-theme', theme); } catch { /* not allowed: the choice lasts until the page is closed */ }
  byId('theme').setAttribute('aria-label', `Theme: ${theme}`);
  say(byId('theme'), { auto: 'Theme', light: 'Light', dark: 'Dark' }[theme]);
  view?.draw();
}

const themeNow = () => document.documentElement.dataset.theme ?? 'auto';
const nextTheme = () => setTheme(THEMES[(THEMES.indexOf(themeNow()) + 1) % THEMES.length]);

const KEYS = [
  ['1 … 9', 'open a view, in order'],
  ['/', 'filter'],
  ['↑ ↓ or k j', 'select a row'],
  ['Enter', 'open a volume; on a heading, sort by it'],
  ['Esc', 'clear the filter; go back'],
  ['a', 'per second, or totals since the start'],
  ['p or space', 'pause or resume'],
  ['t', 'light, dark or the system’s theme'],
  ['← →', 'move along the focused chart'],
  ['← → ↑ ↓', 'move through a flame graph; Enter zooms in, Backspace out'],
  ['?', 'show these keys'],
];

function showKeys() {
  const dialog = byId('keys');
  if (dialog.open) { dialog.close(); return; }
  dialog.replaceChildren(h('h2', { id: 'keys-title' }, 'Keys'),
    h('dl', {}, ...KEYS.flatMap(([key, what]) => h('div', {}, h('dt', {}, h('kbd', {}, key)), h('dd', {}, what)))),
    h('button', { type: 'button', autofocus: true, on: { click: () => dialog.close() } }, 'Close'));
  dialog.showModal();
}

function openMenu(isOpen) {
  document.body.classList.toggle('menu-open', isOpen);
  byId('menu').setAttribute('aria-expanded', String(isOpen));
}

function moveRow(step) {
  const rows = [...byId('main').querySelectorAll('tbody tr[tabindex]')];
  if (rows.length === 0) return;
  const at = rows.indexOf(document.activeElement);
  rows[Math.min(Math.max(at + step, 0), rows.length - 1)].focus();
}

function onKey(event) {
  if (event.ctrlKey || event.metaKey || event.altKey || byId('keys').open) return;
  const isTyping = event.target instanceof HTMLInputElement;
  if (isTyping && event.key === 'Escape') { event.target.blur(); view?.back?.(); return; }
  if (isTyping) return;
  const isButton = event.target instanceof HTMLButtonElement;
  const acts = {
    '?': showKeys,
    '/': () => view?.filter?.focus(),
    a: () => view?.span?.click(),
    p: () => setPaused(!paused),
    ' ': isButton ? undefined : () => setPaused(!paused),
    t: nextTheme,
    j: () => moveRow(1),
    k: () => moveRow(-1),
    ArrowDown: view?.span ? () => moveRow(1) : undefined,
    ArrowUp: view?.span ? () => moveRow(-1) : undefined,
    Escape: () => (document.body.classList.contains('menu-open') ? openMenu(false) : view?.back?.()),
  };
  const route = /^[1-9]$/.test(event.key) && context.about ? routes()[Number(event.key) - 1] : undefined;
  if (route) location.hash = route.route;
  else if (acts[event.key]) acts[event.key]();
  else return;
  event.preventDefault();
}

// Following the link would set the address to `#main`, which would be taken for a view.
document.querySelector('.skip').addEventListener('click', (event) => { event.preventDefault(); byId('main').focus(); });
byId('pause').addEventListener('click', () => setPaused(!paused));
byId('theme').addEventListener('click', nextTheme);
byId('help').addEventListener('click', showKeys);
byId('sign-out').addEventListener('click', signOut);
byId('menu').addEventListener('click', () => openMenu(!document.body.classList.contains('menu-open')));
document.addEventListener('keydown', onKey);
document.addEventListener('visibilitychange', () => (document.hidden ? clearTimeout(timer) : look()));
window.addEventListener('hashchange', showRoute);
matchMedia('(prefers-color-scheme: dark)').addEventListener('change', () => view?.draw());
setInterval(() => { if (awaySince !== null) tellAway(); }, 1000);
setTheme(themeNow());
const first = location.hash.slice(1);
if (first.startsWith('/login/')) showRoute(); else look();
