// The query box: SQL over all tables, with completion and what was asked before.

import { get, send, tablePath } from "/console/api.js";
import { completing, quoted } from "/console/completion.js";
import { bytes, h, number } from "/console/dom.js";
import { rowsOf } from "/console/later.js";
import { problem } from "/console/live.js";
import { result } from "/console/results.js";

const HISTORY = "dormouse-history";
const MOST = 50; // statements that are remembered
const MOST_ROWS = 10_000; // of an answer that comes later
let draft = ""; // what was typed when another place was looked at

function past() {
  try {
    return JSON.parse(localStorage.getItem(HISTORY)) ?? [];
  } catch {
    return [];
  }
}

function remember(text) {
  localStorage.setItem(HISTORY, JSON.stringify([text, ...past().filter((each) => each !== text)].slice(0, MOST)));
}

/** Return the place of the query box. A parameter `table`, maybe with a `version`, begins a statement. */
export async function showQuery(parameters) {
  const table = parameters.get("table");
  if (table) draft = await begun(table, parameters.get("version"));
  const field = h("textarea", {
    rows: 6, spellcheck: "false", autocapitalize: "off", autocomplete: "off", "aria-label": "SQL statement",
    placeholder: "SELECT … FROM …", value: draft, oninput: () => { draft = field.value; },
    onkeydown: (event) => {
      if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) run();
    },
  });
  const answer = h("div", { id: "answer", "aria-live": "polite" });
  const go = h("button", { type: "button", class: "primary", onclick: () => run() }, "Run");
  const stop = h("button", { type: "button", hidden: true, onclick: () => running?.abort() }, "Stop");
  const explain = h("button", { type: "button", onclick: () => run("EXPLAIN ") }, "Explain");
  const history = h("select", { "aria-label": "Statements of before", onchange: () => {
    field.value = draft = past()[history.value] ?? field.value;
    history.value = "";
    field.focus();
  } });
  let running = null;

  function fillHistory() {
    const shown = past().map((text, place) => h("option", { value: place }, text.replace(/\s+/g, " ").slice(0, 80)));
    history.replaceChildren(h("option", { value: "" }, "History"), ...shown);
    history.value = "";
  }

  async function run(before = "") {
    const text = field.value.trim().replace(/;$/, "");
    if (!text || running) return;
    running = new AbortController();
    [go.disabled, explain.disabled, stop.hidden] = [true, true, false];
    answer.replaceChildren(h("p", { class: "muted" }, "Running …"));
    const started = performance.now();
    try {
      const body = { text: before + text };
      let found = await send("/sql", body, { signal: running.signal });
      if (found.query_id) found = await rowsOf(found.query_id, { most: MOST_ROWS, progress, signal: running.signal });
      const seconds = (performance.now() - started) / 1000;
      answer.replaceChildren(before ? plan(found) : result(found, { path: "/sql", body, seconds }));
      remember(text);
      fillHistory();
    } catch (error) {
      answer.replaceChildren(error.name === "AbortError" ? h("p", { class: "muted" }, "Stopped.") : problem(error));
    }
    [running, go.disabled, explain.disabled, stop.hidden] = [null, false, false, true];
  }

  function progress({ parts = 0, parts_done = 0, rows = 0 }) {
    const said = parts ? `${parts_done} of ${parts} parts, ` : "";
    answer.replaceChildren(h("p", { class: "muted", role: "status" }, `Running: ${said}${number(rows)} rows …`));
  }

  fillHistory();
  return h("section", {}, h("div", { class: "head" }, h("h1", {}, "Query"), history),
    h("div", { class: "editor" }, field, completing(field)),
    h("div", { class: "actions" }, go, stop, explain, h("span", { class: "muted" }, h("kbd", {}, "Ctrl"), " ", h("kbd", {}, "Enter"), " runs it")),
    answer);
}

async function begun(table, version) {
  const found = await get(tablePath(table));
  const as_of = version ? ` FOR VERSION AS OF ${Number(version)}` : "";
  return `SELECT ${found.fields.map((field) => quoted(field.name)).join(", ")}\nFROM ${quoted(table)}${as_of}\nLIMIT 100`;
}

/** Return what EXPLAIN answers: what is read of each table, in numbers, and the plans. */
function plan({ rows }) {
  return h("div", {}, rows.map(({ step, plan: text, ...numbers }) => {
    const facts = Object.entries(numbers).filter(([, value]) => value !== null);
    return [
      h("h2", {}, step),
      facts.length ? h("dl", { class: "facts" }, facts.map(([name, value]) =>
        h("div", {}, h("dt", {}, name.replaceAll("_", " ")), h("dd", {}, name === "bytes" ? bytes(value) : number(value))))) : null,
      h("pre", { class: "plan", tabindex: "0" }, text),
    ];
  }));
}
