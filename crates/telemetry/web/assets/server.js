// Requests to the server, and detection of whether it answers.

export class Refused extends Error {
  constructor(status, words) { super(words); this.status = status; }
}
// The server did not answer, stopped during an answer, or is starting.
export class Away extends Error {}

const PATIENCE_MS = 10000;

async function ask(path, options) {
  let reply;
  try {
    reply = await fetch(`/api/${path}`, { cache: 'no-store', credentials: 'same-origin', signal: AbortSignal.timeout(PATIENCE_MS), ...options });
  } catch {
    throw new Away('The server does not answer');
  }
  if (reply.status === 503) throw new Away('The server is starting');
  if (!reply.ok) throw new Refused(reply.status, (await reply.text()).trim());
  try {
    return await reply.json();
  } catch {
    throw new Away('The server stopped in the middle of an answer');
  }
}

export const get = (path) => ask(path, {});
export const post = (path, body) => ask(path, { method: 'POST', body, headers: { 'X-Cellar': '1' } });

// The server's samples of the last quarter of an hour; each update requests only new samples.
export class History {
  constructor(about) { this.about = about; this.samples = []; }

  get last() { return this.samples[this.samples.length - 1]; }

  async look() {
    const news = await get(`history?after=${this.last?.number ?? 0}`);
    for (const [number, at, span, lines, heats] of news) this.samples.push({ number, at, span, lines, heats });
    this.samples.splice(0, Math.max(0, this.samples.length - this.about.samples_max));
  }

  // Returns the values of a line, per second if `isRate`.
  line(index, isRate) {
    return this.samples.map((sample) => ({ at: sample.at, value: isRate ? (sample.lines[index] * 1000) / sample.span : sample.lines[index] }));
  }

  heat(index) { return this.samples.map((sample) => ({ at: sample.at, pairs: sample.heats[index] })); }
}
