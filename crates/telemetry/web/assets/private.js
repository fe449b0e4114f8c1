// Views that require signing in: volumes with their snapshots, slow calls, jobs, probes.

import { h, note } from './dom.js';
import { get, Refused } from './server.js';
import { plainTable } from './table.js';
import { TableView, locked } from './views.js';
import { bytes, exact, time, text, day, clock, ago } from './format.js';

const FOCUSABLE = 'a[href], button, summary, [tabindex]';

// Identifies an element independently of its current text.
const kindOf = (element) => [element.tagName, element.closest('[id]')?.id, element.getAttribute('href'), element.getAttribute('aria-label')].join(' ');

// A view of one document, redrawn when the document has changed.
class Document {
  constructor(title, path, about) {
    Object.assign(this, { title, path });
    this.body = h('div', { class: 'stack' });
    this.element = h('section', { class: 'view' }, h('div', { class: 'title' }, h('h1', {}, title), h('span', { class: 'faint' }, about)), this.body);
  }

  async look() {
    let told;
    try {
      told = await get(this.path);
    } catch (error) {
      if (!(error instanceof Refused)) throw error;
      this.text = undefined;
      this.body.replaceChildren(error.status === 401 ? locked(this.title) : h('div', { class: 'panel' }, note('Not available', error.message)));
      return;
    }
    const news = JSON.stringify(told);
    if (news === this.text) return;
    this.text = news;
    const kept = this.keep();
    this.body.replaceChildren(...this.parts(told));
    kept();
  }

  // Saves the user's state of the view (open details, scroll positions, focus) and returns a function that restores it.
  keep() {
    const all = (selector) => [...this.body.querySelectorAll(selector)];
    const open = all('details[open]').map((one) => one.id);
    const scrolled = all('.scroll').map((one) => [kindOf(one), one.scrollLeft, one.scrollTop]);
    const at = this.body.contains(document.activeElement) ? kindOf(document.activeElement) : undefined;
    const place = all(FOCUSABLE).filter((one) => kindOf(one) === at).indexOf(document.activeElement);
    return () => {
      for (const id of open) this.body.querySelector(`#${CSS.escape(id)}`)?.setAttribute('open', '');
      for (const [kind, left, top] of scrolled) all('.scroll').find((one) => kindOf(one) === kind)?.scrollTo(left, top);
      if (at !== undefined) all(FOCUSABLE).filter((one) => kindOf(one) === at)[Math.max(place, 0)]?.focus({ preventScroll: true });
    };
  }

  draw() {}
}

const WHY = {
  queue: 'waited for a worker',
  lock: 'waited for another change of the volume',
  disk: 'waited for the disk',
  callback: 'waited for clients to answer their callbacks',
  client: 'waited for its own client to send or receive data',
  load: 'waited for its volume to be loaded',
  work: 'was running, or waited for something that is not measured',
};

export class Slow extends Document {
  constructor() { super('Slow calls', 'slow', 'the most recent slow calls, and where their time went'); }

  parts({ from_ns, parts, calls }) {
    if (from_ns === 0) return [h('div', { class: 'panel' }, note('Slow calls are not recorded', 'observe.slow_call_ms is 0.'))];
    if (calls.length === 0) return [h('div', { class: 'panel' }, note('No slow call', `No call took ${text(from_ns, 'ns')} or more since the server’s start.`))];
    const names = [...parts, 'work'];
    const legend = h('div', { class: 'legend' }, ...names.map((name) => h('span', { class: `key part-${name}` }, h('i', {}), name)));
    return [h('div', { class: 'panel stack' }, h('p', { class: 'faint' }, `Calls that took ${text(from_ns, 'ns')} or more; the latest first.`), legend,
      plainTable('slow', 'Slow calls', ['Ended', 'Call', 'Volume', 'By', 'Duration', 'Where the time went', 'Result'], calls.map((call) => slowRow(call, parts))))];
  }
}

function slowRow(call, parts) {
  const waits = call.parts_ns.reduce((sum, part) => sum + part, 0);
  const shares = [...parts.map((name, index) => [name, call.parts_ns[index]]), ['work', Math.max(0, call.total_ns - waits)]];
  const told = shares.filter(([, ns]) => ns * 100 >= call.total_ns).map(([name, ns]) => `${name} ${text(ns, 'ns')}`).join(', ');
  const bar = h('div', { class: 'parts', role: 'img', 'aria-label': told }, ...shares.filter(([, ns]) => ns > 0).map(([name, ns]) => h('i', { class: `part-${name}`, title: `${name} ${text(ns, 'ns')}`, vars: { 'flex-grow': String(ns / call.total_ns) } })));
  const volume = call.volume === 0 ? '–' : h('a', { href: `#/volume/${call.volume}` }, call.volume_name || String(call.volume));
  return [day(call.ended), `${call.service} ${call.procedure}`, volume, `${call.user} at ${call.host}`, time(call.total_ns),
    h('div', {}, bar, h('span', { class: 'faint small' }, `${WHY[call.cause] ?? call.cause} (${told})`)), call.code === null ? 'ok' : `code ${call.code}`];
}

const kib = (value) => bytes(value * 1024);

export class Inventory extends Document {
  constructor() { super('All volumes', 'volumes', 'on this server, by partition and number'); }

  parts({ volumes, more }) {
    if (volumes.length === 0) return [h('div', { class: 'panel' }, note('No volumes', 'This server has no volumes yet.'))];
    const rows = volumes.map((volume) => [h('a', { href: `#/volume/${volume.id}` }, volume.name), String(volume.id), volume.partition, volume.is_apart ? `${volume.kind}, held apart` : volume.kind, volume.in_service ? 'online' : `offline ${volume.offline_message}`, kib(volume.used_kib), volume.quota_kib ? kib(volume.quota_kib) : ['none', ''], exact(volume.files), day(volume.updated)]);
    return [h('div', { class: 'panel' }, plainTable('inventory', 'All volumes', ['Name', 'Number', 'Partition', 'Kind', 'State', 'Used', 'Quota', 'Files', 'Changed'], rows), more && h('p', { class: 'faint foot' }, 'There are more; cellar volume list shows all.'))];
  }
}

class Facts extends Document {
  constructor(id) { super(`Volume ${id}`, `volumes/${id}`, ''); }

  parts(volume) {
    this.element.querySelector('h1').textContent = volume.name;
    const fact = (name, value) => [h('dt', {}, name), h('dd', { class: 'number' }, value)];
    const joined = (pair) => pair.join(' ').trim();
    const quota = volume.quota_kib ? `${joined(kib(volume.used_kib))} of ${joined(kib(volume.quota_kib))}` : `${joined(kib(volume.used_kib))}, no quota`;
    const facts = [['Number', String(volume.id)], ['Kind', volume.kind], ['Partition', volume.partition], ['State', volume.in_service ? 'online' : `offline ${volume.offline_message}`], ['Used', quota], ['Files', joined(exact(volume.files))], ['Directories', joined(exact(volume.directories))], ['Made', day(volume.created)], ['Changed', day(volume.updated)], ['Uses today', joined(exact(volume.day_use))]];
    const snapshots = volume.snapshots.map((snapshot) => [h('a', { href: `#/volume/${snapshot.id}` }, snapshot.name), String(snapshot.id), day(snapshot.made), snapshot.expires ? day(snapshot.expires) : 'never', snapshot.used_kib === null ? ['–', ''] : kib(snapshot.used_kib)]);
    return [h('dl', { class: 'panel facts' }, ...facts.flatMap(([name, value]) => h('div', {}, ...fact(name, value)))),
      h('div', { class: 'panel' }, h('h2', {}, 'Snapshots'), snapshots.length ? plainTable('snapshots', 'Snapshots', ['Name', 'Volume', 'Made', 'Expires', 'Shows'], snapshots) : h('p', { class: 'empty' }, 'None. cellar volume snapshot create makes one.'))];
  }
}

// A volume: its properties, its clients, its snapshots.
export class Volume {
  constructor(context, id) {
    this.facts = new Facts(id);
    const clients = context.about.tables.find(({ name }) => name === 'clients');
    this.clients = new TableView(context, clients, { path: `tables/clients?volume=${encodeURIComponent(id)}`, title: 'Its clients', heading: 'h2', about: 'users at hosts, the most calls first' });
    this.element = h('div', { class: 'stack' }, h('p', {}, h('a', { href: '#/table/volumes' }, '← Volumes')), this.facts.element, this.clients.element);
  }

  async look() {
    await this.facts.look();
    this.clients.element.hidden = this.facts.text === undefined;
    if (this.facts.text !== undefined) await this.clients.look();
  }

  draw() { this.clients.draw(); }

  get filter() { return this.clients.filter; }

  get span() { return this.clients.span; }

  back() {
    if (!this.clients.back()) location.hash = '#/table/volumes';
    return true;
  }

  forget() { this.clients.forget(); }
}

const STAGES = ['beginning', 'working', 'switching', 'cleaning', 'done'];

export class Jobs extends Document {
  constructor() { super('Jobs', 'jobs', 'moves, copies, releases, backups, restores and splits of volumes, the latest first'); }

  parts(jobs) {
    if (jobs.length === 0) return [h('div', { class: 'panel' }, note('No jobs', 'cellar volume move, copy, release and backup run as jobs.'))];
    return jobs.map((job) => {
      const [first, last] = [job.events[0], job.events[job.events.length - 1]];
      const working = job.stage === 'working' && job.total > 0 ? Math.min(1, job.done / job.total) : 0;
      const place = STAGES.indexOf(job.stage) + working;
      const sent = job.total > 0 && h('p', { class: 'sent faint', data: { total: job.total, done: job.done, sent: job.sent } }, `${text(job.done, 'bytes')} of ${text(job.total, 'bytes')} are there, ${text(job.sent, 'bytes')} were sent`);
      const bar = h('progress', { max: String(STAGES.length - 1), value: job.is_over ? String(STAGES.length - 1) : place < 0 ? undefined : String(place), 'aria-label': `Job ${job.job}: ${job.stage}` });
      return h('article', { class: `panel job is-${job.stage}`, data: { job: job.job } },
        h('div', { class: 'title' }, h('h2', {}, job.title), h('span', { class: 'faint' }, `job ${job.job}`), h('span', { class: 'spring' }), h('span', { class: 'stage' }, job.stage.replaceAll('_', ' '))),
        bar, h('p', { class: job.trouble ? 'trouble' : 'faint' }, job.trouble ?? last?.[1] ?? 'not started'), sent,
        h('details', { id: `job-${job.job}` }, h('summary', {}, `${job.events.length} steps${first ? `, started ${day(first[0])}` : ''}`), h('ol', {}, ...job.events.map(([at, what]) => h('li', {}, h('span', { class: 'faint number' }, `${day(at)} `), what)))));
    });
  }
}

const us = (value) => (value === null ? ['–', ''] : time(value * 1000));

export class Probes extends Document {
  constructor() { super('Probes', 'probes', 'access latency as users see it, in the last 24 hours'); }

  parts({ summary, outcomes }) {
    if (summary.volumes.length === 0) return [h('div', { class: 'panel' }, note('No probes', 'cellar probe run adds to the configured history.'))];
    const rows = summary.volumes.map((one) => [one.volume, one.server ?? '–', strip(outcomes.filter(({ volume }) => volume === one.volume)), exact(one.probes), exact(one.failures), us(one.read.median_us), us(one.read.p99_us), us(one.write.median_us), us(one.write.p99_us), us(one.total.max_us)]);
    const incidents = summary.incidents.map((one) => [day(one.start_ms / 1000), one.volume, one.server ?? '–', one.end_ms === null ? 'ongoing' : ago(one.end_ms - one.start_ms), exact(one.failures), `${one.step}: ${one.error}`]);
    return [h('div', { class: 'panel' }, plainTable('probes', 'Probes', ['Volume', 'Server', 'Recent', 'Probes', 'Failed', 'Read p50', 'p99', 'Write p50', 'p99', 'Longest'], rows)),
      h('div', { class: 'panel' }, h('h2', {}, 'Incidents'), incidents.length ? plainTable('incidents', 'Incidents', ['Started', 'Volume', 'Server', 'Lasted', 'Failures', 'What failed first'], incidents) : h('p', { class: 'empty' }, 'None.')),
      summary.damaged_lines > 0 && h('p', { class: 'faint' }, `${summary.damaged_lines} lines of the history could not be read.`)].filter(Boolean);
  }
}

// Shows the last probes as bars; failed ones stand out by colour and height.
function strip(outcomes) {
  const last = outcomes.slice(-60);
  const most = Math.max(1, ...last.map(({ total_us }) => total_us));
  const bars = last.map((one) => h('i', { class: one.error === null ? '' : 'failed', title: `${clock(one.time_ms)} ${one.error ?? us(one.total_us).join(' ')}`, vars: { height: `${one.error === null ? Math.max(8, (100 * one.total_us) / most) : 100}%` } }));
  const failed = last.filter(({ error }) => error !== null).length;
  return h('span', { class: 'strip', role: 'img', 'aria-label': `last ${last.length} probes, ${failed} failed` }, ...bars);
}
