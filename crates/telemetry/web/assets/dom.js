// Creation of elements. Text only ever becomes text nodes, never markup, because names come from users.

export const h = (tag, props, ...children) => filled(document.createElement(tag), props, children);

// Creates an SVG element.
export const s = (tag, props, ...children) => filled(document.createElementNS('http://www.w3.org/2000/svg', tag), props, children);

function filled(element, props, children) {
  for (const [name, value] of Object.entries(props ?? {})) {
    if (value === undefined || value === null || value === false) continue;
    if (name === 'on') for (const [event, act] of Object.entries(value)) element.addEventListener(event, act);
    else if (name === 'data') Object.assign(element.dataset, value);
    else if (name === 'vars') for (const [key, text] of Object.entries(value)) element.style.setProperty(key, text);
    else element.setAttribute(name, value === true ? '' : value);
  }
  element.append(...children.flat().filter((child) => child !== null && child !== undefined && child !== false));
  return element;
}

// Sets the text only if it differs, so that selections stay.
export function say(element, text) {
  if (element.textContent !== text) element.textContent = text;
}

export const byId = (id) => document.getElementById(id);

// Returns the value of a colour variable of the style sheet in the current theme.
const probe = h('span', { hidden: true });
export function colour(name) {
  if (!probe.isConnected) document.body.append(probe);
  probe.style.color = `var(${name})`;
  return getComputedStyle(probe).color;
}

export function note(title, ...lines) {
  return h('div', { class: 'note' }, h('h2', {}, title), ...lines.map((line) => (line instanceof Node ? line : h('p', {}, line))));
}
