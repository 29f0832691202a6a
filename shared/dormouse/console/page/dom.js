// Elements, and how numbers, sizes and times are written. Text is never parsed as HTML.

/** Return an element. `props` are attributes; those that begin with "on" are listeners. */
export function h(tag, props = {}, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(props ?? {})) {
    if (value === false || value === null || value === undefined) continue;
    if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else if (name === "value") {
      element.value = value;
      if ("defaultValue" in element) element.defaultValue = value;
    }
    else element.setAttribute(name, value === true ? "" : value);
  }
  element.append(...children.flat(Infinity).filter((child) => child !== null && child !== undefined && child !== false));
  return element;
}

/** Return an element of SVG. */
export function svg(tag, props = {}, ...children) {
  const element = document.createElementNS("http://www.w3.org/2000/svg", tag);
  for (const [name, value] of Object.entries(props)) element.setAttribute(name, value);
  element.append(...children.flat());
  return element;
}

const whole = new Intl.NumberFormat("en-GB");
const short = new Intl.NumberFormat("en-GB", { maximumFractionDigits: 2 });

/** Return a count as people read it. Numbers of rows are shown as they are sent: String(value). */
export function number(value) {
  if (value === null || value === undefined) return "–";
  return Number.isInteger(value) ? whole.format(value) : short.format(value);
}

/** Return a number of bytes with its unit; 1 kB is 1,000 bytes. */
export function bytes(value) {
  const units = ["B", "kB", "MB", "GB", "TB", "PB"];
  let step = 0;
  while (value >= 1000 && step < units.length - 1) [value, step] = [value / 1000, step + 1];
  return `${value < 10 && step ? value.toFixed(1) : Math.round(value)} ${units[step]}`;
}

/** Return a count with its noun: "1 row", "2 rows". */
export function counted(count, noun, plural = `${noun}s`) {
  return `${number(count)} ${count === 1 ? noun : plural}`;
}

/** Return how long a number of seconds is: "3 min". */
export function duration(seconds) {
  if (seconds < 1) return `${Math.round(seconds * 1000)} ms`;
  for (const [unit, size] of [["d", 86400], ["h", 3600], ["min", 60]]) {
    if (seconds >= size * 2) return `${Math.round(seconds / size)} ${unit}`;
  }
  return `${seconds < 10 ? seconds.toFixed(1) : Math.round(seconds)} s`;
}

/** Return a time as an element: how long ago it was, and exactly when. */
export function when(milliseconds) {
  if (!milliseconds) return "–";
  const time = new Date(milliseconds);
  const seconds = Math.max(0, (Date.now() - milliseconds) / 1000);
  const text = seconds < 5 ? "now" : `${duration(seconds)} ago`;
  return h("time", { datetime: time.toISOString(), title: time.toISOString() }, text);
}

/** Return a table. `columns` are [title, function of an item, options]. */
export function grid(caption, columns, items, { empty = "Nothing here.", row = () => ({}) } = {}) {
  if (!items.length) return h("p", { class: "muted" }, empty);
  const head = columns.map(([title, , options]) => h("th", { scope: "col", class: options?.class }, title));
  const body = items.map((item) =>
    h("tr", row(item), columns.map(([, cell, options]) => h("td", { class: options?.class }, cell(item)))));
  return scroller(caption, h("table", {}, h("caption", { class: "unseen" }, caption),
    h("thead", {}, h("tr", {}, head)), h("tbody", {}, body)));
}

/** Return what scrolls sideways by itself, also by keyboard. */
export function scroller(label, ...children) {
  return h("div", { class: "scroll", role: "region", "aria-label": label, tabindex: "0" }, children);
}

/** Return a coloured word for a state. */
export function badge(state) {
  const kinds = {
    finished: "good", ingested: "good", online: "good", running: "busy", assigned: "busy", waiting: "busy",
    accepted: "busy", refused: "bad", failed: "bad", damaged: "bad", offline: "bad", dead: "bad", cancelled: "bad",
  };
  return h("span", { class: `badge ${kinds[state] ?? ""}` }, state);
}

/** Show a sentence for some seconds, and read it to people who cannot see it. */
export function note(text, kind = "") {
  const shown = h("p", { class: `note ${kind}` }, text,
    h("button", { type: "button", class: "quiet", "aria-label": "Close this note", onclick: () => shown.remove() }, "×"));
  document.getElementById("notes").append(shown);
  if (kind !== "bad") setTimeout(() => shown.remove(), 8000);
}
