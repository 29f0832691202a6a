// A chart of two columns: bars where one has names, a line where it has times or sorted numbers.

import { svg } from "/console/dom.js";
import { isNumeric } from "/console/results.js";

const WIDTH = 900, HEIGHT = 320, LEFT = 70, BOTTOM = 60, TOP = 12;
const MOST_BARS = 60, MOST_POINTS = 5000, WIDEST_BAR = 64;

/** Return the columns that suggest a chart, as [of the labels, of the values]; null if none do. */
export function columnsOf({ columns, rows }) {
  if (rows.length < 2 || columns.length < 2) return null;
  const values = columns.find((column, place) => place > 0 && isNumeric(column));
  const labels = columns.find((column) => column !== values);
  if (!values || !labels) return null;
  const isLine = isTime(labels) || isNumeric(labels);
  return rows.length <= (isLine ? MOST_POINTS : MOST_BARS) ? [labels, values] : null;
}

function isTime({ type }) {
  return /^(date|timestamp)/.test(type);
}

/** Return a chart of a result; null if no two columns suggest one. */
export function chartOf(found) {
  const chosen = columnsOf(found);
  if (!chosen) return null;
  const [labels, values] = chosen;
  const isLine = isTime(labels) || isNumeric(labels); // where null has no place, as it has among bars
  const points = found.rows
    .filter((row) => row[values.name] !== null && (row[labels.name] !== null || !isLine)) // Number(null) is 0
    .map((row) => ({ label: row[labels.name], value: Number(row[values.name]), text: String(row[values.name]) }))
    .filter(({ value }) => Number.isFinite(value));
  if (points.length < 2) return null;
  const low = Math.min(0, ...points.map(({ value }) => value));
  const greatest = Math.max(0, ...points.map(({ value }) => value));
  const step = niceStep((greatest - low) / 4);
  const high = Math.ceil(greatest / step) * step;
  const y = (value) => TOP + (HEIGHT - TOP - BOTTOM) * (1 - (value - low) / (high - low || 1));
  const drawn = isLine ? line(points, labels, y) : bars(points, y);
  const sorted = [...points].sort((a, b) => a.value - b.value);
  const text = `${values.name} by ${labels.name}: ${points.length} values from ${sorted[0].text} to ${sorted[sorted.length - 1].text}`;
  return svg("svg", { viewBox: `0 0 ${WIDTH} ${HEIGHT}`, class: "chart", role: "img", "aria-label": text }, axis(low, high, step, y), drawn);
}

function axis(low, high, step, y) {
  const marks = [];
  for (let at = Math.ceil(low / step) * step; at <= high + step / 1e6; at += step) marks.push(at);
  return marks.flatMap((at) => [
    svg("line", { x1: LEFT, x2: WIDTH, y1: y(at), y2: y(at), class: at === 0 ? "zero" : "rule" }),
    svg("text", { x: LEFT - 8, y: y(at) + 4, "text-anchor": "end" }, String(Number(at.toPrecision(6)))),
  ]);
}

function niceStep(raw) {
  const power = 10 ** Math.floor(Math.log10(raw || 1));
  return power * [1, 2, 5, 10].find((each) => each * power >= raw);
}

function bars(points, y) {
  const each = (WIDTH - LEFT) / points.length;
  const skipped = Math.ceil(points.length / 24);
  return points.flatMap(({ label, value, text }, place) => {
    const x = LEFT + place * each;
    const width = Math.min(each * 0.76, WIDEST_BAR);
    const bar = svg("rect", { x: x + (each - width) / 2, width, y: Math.min(y(0), y(value)), height: Math.max(1, Math.abs(y(value) - y(0))) },
      svg("title", {}, `${label}: ${text}`));
    return place % skipped ? [bar] : [bar, name(x + each / 2, String(label), points.length > 12)];
  });
}

function line(points, labels, y) {
  const place = isTime(labels) ? (label) => Date.parse(label) : Number;
  const sorted = points.map((point) => ({ ...point, at: place(point.label) })).filter(({ at }) => Number.isFinite(at)).sort((a, b) => a.at - b.at);
  if (!sorted.length) return [];
  const [first, last] = [sorted[0].at, sorted[sorted.length - 1].at];
  const x = (at) => LEFT + (WIDTH - LEFT - 10) * ((at - first) / (last - first || 1));
  const path = sorted.map(({ at, value }, number_) => `${number_ ? "L" : "M"}${x(at).toFixed(1)} ${y(value).toFixed(1)}`).join("");
  const marks = [0, 0.25, 0.5, 0.75, 1].map((part) => sorted[Math.round(part * (sorted.length - 1))]);
  return [svg("path", { d: path, class: "line" }), ...marks.map(({ at, label }) => name(x(at), String(label).slice(0, 16), false))];
}

function name(x, label, isSlanted) {
  const text = label.length > 16 ? `${label.slice(0, 15)}…` : label;
  const y = HEIGHT - BOTTOM + 16;
  return svg("text", { x, y, "text-anchor": isSlanted ? "end" : "middle", ...(isSlanted ? { transform: `rotate(-40 ${x} ${y})` } : {}) }, text);
}
