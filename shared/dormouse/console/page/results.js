// Rows as people look at them: in pages, as a chart, as a file.

import { ask } from "/console/api.js";
import { chartOf } from "/console/chart.js";
import { stringify } from "/console/exact.js";
import { bytes, counted, h, note, number, scroller } from "/console/dom.js";
import { filesOf } from "/console/later.js";

const PAGE = 100; // rows that are in the document at once
const FORMS = [["CSV", "text/csv", "csv"], ["JSON lines", "application/x-ndjson", "jsonl"], ["Arrow", "application/vnd.apache.arrow.stream", "arrows"]];

/** Return whether a column, by its type in Arrow, holds numbers. */
export function isNumeric({ type }) {
  return /^(u?int|float|double|half|decimal)/.test(type);
}

/** Return a table of rows, a page of them at a time. */
export function rowGrid(caption, { columns, rows }) {
  if (!rows.length) return h("p", { class: "muted" }, "No rows.");
  const place = h("div");
  let first = 0;
  function draw() {
    const some = rows.slice(first, first + PAGE);
    const head = columns.map((column) => h("th", { scope: "col", class: isNumeric(column) ? "right" : "", title: column.type }, column.name));
    const body = some.map((row) => h("tr", {}, columns.map((column) => cell(column, row[column.name]))));
    const last = first + some.length;
    const turn = (text, to, stays) => h("button", { type: "button", disabled: stays, onclick: () => { first = to; draw(); } }, text);
    const pager = rows.length > PAGE ? h("div", { class: "pager" },
      turn("Previous", first - PAGE, first === 0), h("span", {}, `${number(first + 1)}–${number(last)} of ${number(rows.length)}`),
      turn("Next", first + PAGE, last >= rows.length)) : null;
    place.replaceChildren(scroller(caption, h("table", { class: "rows" }, h("caption", { class: "unseen" }, caption),
      h("thead", {}, h("tr", {}, head)), h("tbody", {}, body))), pager ?? "");
  }
  draw();
  return place;
}

function cell(column, value) {
  if (value === null || value === undefined) return h("td", { class: isNumeric(column) ? "null right" : "null" }, "null");
  if (isNumeric(column)) return h("td", { class: "right" }, String(value)); // all digits: it is copied into statements
  return h("td", { class: "code" }, typeof value === "object" ? stringify(value) : String(value));
}

/** Return a result: its rows, a chart of them if two columns suggest one, and ways to save it. */
export function result(found, { path, body, seconds }) {
  const chart = chartOf(found);
  const rows = rowGrid("Result", found);
  const place = h("div", {}, rows);
  const said = `${found.more ? "the first " : ""}${counted(found.rows.length, "row")} in ${seconds.toFixed(2)} s${found.version ? `, version ${found.version}` : ""}`;
  const swap = chart && h("button", { type: "button", "aria-pressed": "false", onclick: () => {
    const isChart = swap.getAttribute("aria-pressed") === "false";
    swap.setAttribute("aria-pressed", String(isChart));
    place.replaceChildren(isChart ? chart : rows);
  } }, "Chart");
  const saves = FORMS.map(([name, type, ending]) =>
    h("button", { type: "button", onclick: () => save(path, body, type, `result.${ending}`) }, name));
  return h("div", {}, h("div", { class: "actions" }, h("span", { class: "muted", role: "status" }, said), swap,
    h("span", { class: "group", role: "group", "aria-label": "Save the result as" }, h("span", { class: "muted" }, "Save as"), saves)), place);
}

async function save(path, body, type, name) {
  try {
    const headers = { "content-type": "application/json", accept: type };
    const answer = await ask(path, { method: "POST", body: JSON.stringify(body), headers });
    const parts = [];
    for await (const file of answer.status === 202 ? filesOf((await answer.json()).query_id) : [answer]) parts.push(await file.blob());
    const blob = new Blob(parts);
    const url = URL.createObjectURL(blob);
    h("a", { href: url, download: name }).click();
    setTimeout(() => URL.revokeObjectURL(url), 60_000);
    note(`Saved ${name}, ${bytes(blob.size)}.`, "good");
  } catch (error) {
    note(`${error.message} ${error.hint ?? ""}`, "bad");
  }
}
