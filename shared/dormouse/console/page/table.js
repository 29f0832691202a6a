// One table: its columns and some rows, partitions, shards, versions, properties, jobs and files.

import { all, change, get, send, tablePath } from "/console/api.js";
import { badge, bytes, counted, grid, h, note, number, when } from "/console/dom.js";
import { live, problem } from "/console/live.js";
import { jobGrid } from "/console/jobs.js";
import { rowGrid } from "/console/results.js";
import { health } from "/console/tables.js";
import { filePicker, uploads } from "/console/upload.js";

const FIRST = 50; // rows that are shown
const VIEWS = { overview, partitions, shards, versions, properties, jobs, files };

/** Return the place of a table, with one of its views. */
export async function showTable(name, chosen) {
  const draw = VIEWS[chosen] ?? overview;
  const here = `#/tables/${encodeURIComponent(name)}`;
  const tabs = Object.keys(VIEWS).map((each) =>
    h("a", { href: each === "overview" ? here : `${here}/${each}`, "aria-current": each === chosen ? "page" : null }, each));
  const numbers = live(async () => ({ table: await get(tablePath(name)), status: await get(tablePath(name, "/status")) }), summary);
  return h("section", {},
    h("div", { class: "head" }, h("h1", {}, name), h("a", { class: "button", href: `#/query?table=${encodeURIComponent(name)}` }, "Query")),
    numbers, h("nav", { class: "tabs", "aria-label": `Views of ${name}` }, tabs), await draw(name).catch(problem));
}

function summary({ table, status }) {
  const [state, why] = health({ ...table, status });
  const facts = [
    ["health", h("span", { title: why }, badge(state))], ["rows", number(status.rows)], ["shards", number(status.shards)],
    ["leaf partitions", number(status.leaf_partitions)], ["version", status.version ?? "–"],
    ["files waiting", number(status.files_waiting)], ["pending work", number(status.pending)],
  ];
  return h("dl", { class: "facts" }, facts.map(([label, value]) => h("div", {}, h("dt", {}, label), h("dd", {}, value))));
}

async function overview(name) {
  const table = await get(tablePath(name));
  const rows = await send(tablePath(name, "/query"), { limit: FIRST, page_rows: FIRST }).catch((error) => error);
  return h("div", { class: "halves" },
    h("section", {}, h("h2", {}, "Columns"), grid("Columns", [
      ["Name", (field) => field.name, { class: "code" }], ["Type", (field) => field.type, { class: "code" }], ["Role", (field) => field.role],
    ], table.fields)),
    h("section", {}, h("h2", {}, "First rows"), rows instanceof Error ? problem(rows) : rowGrid("First rows", rows)));
}

async function partitions(name) {
  const found = await all(tablePath(name, "/partitions?all=true"));
  const most = Math.max(1, ...found.map((each) => each.rows));
  const buttons = [
    actionButton("Compact", () => change(tablePath(name, "/compact"), {}), "Compactions that are due are begun."),
    actionButton("Split what is too large", () => change(tablePath(name, "/split"), {}), "Large partitions are split."),
  ];
  const right = { class: "right" };
  return h("div", {}, h("div", { class: "actions" }, buttons), grid("Partitions", [
    ["Keys", (each) => h("span", { class: `code depth depth-${Math.min(each.depth, 12)}` }, each.is_leaf ? "" : "▾ ", each.range === ".." ? "all keys" : each.range)],
    ["Rows", (each) => number(each.rows), right],
    ["Share", (each) => h("meter", { min: 0, max: most, value: each.rows, "aria-label": `${counted(each.rows, "row")} of at most ${number(most)}` })],
    ["Shards", (each) => number(each.shards), right],
    ["Id", (each) => each.id, { class: "code muted" }],
  ], found));
}

async function shards(name) {
  const found = await all(tablePath(name, "/shards"));
  const right = { class: "right" };
  return grid("Shards", [
    ["Shard", (each) => each.id, { class: "code" }],
    ["Rows", (each) => number(each.rows), right], ["Live rows", (each) => number(each.live_rows), right],
    ["Size", (each) => bytes(each.size_bytes), right],
    ["From", (each) => each.first, { class: "code" }], ["To", (each) => each.last, { class: "code" }],
    ["Partitions", (each) => number(each.partitions.length), right],
    ["In jobs", (each) => each.jobs.join(", ") || "–", { class: "code" }],
  ], found, { empty: "No rows yet." });
}

async function versions(name) {
  const { items: found, next } = await get(tablePath(name, "/versions?limit=500"));
  return h("div", {}, grid("Versions", [
    ["Version", (each) => h("a", { href: `#/query?table=${encodeURIComponent(name)}&version=${each.version}` }, each.version), { class: "right" }],
    ["Committed", (each) => when(each.time_ms)], ["Rows", (each) => number(each.rows), { class: "right" }],
    ["Changes", (each) => each.changes.join(", ")], ["Tags", (each) => each.tags.map((tag) => badge(tag))],
  ], found), next ? h("p", { class: "muted" }, "Older versions are left out.") : null);
}

async function properties(name) {
  const found = Object.entries(await get(tablePath(name, "/properties")));
  const change_ = (property) => async (event) => {
    const field = event.target;
    if (field.type === "number" && field.value === "") { // also what is no number
      field.value = field.defaultValue;
      return;
    }
    const value = field.type === "number" ? Number(field.value) : field.value;
    field.disabled = true;
    const put = (yes) => change(tablePath(name), { properties: { [property]: value }, ...yes }, "PATCH");
    try {
      await put({}).catch((error) => { // 409: rows would be hidden
        if (error.status !== 409 || !window.confirm(`${error.message} Go on?`)) throw error;
        return put({ hide_rows: true });
      });
      note(`${property} is ${value}.`, "good");
      field.defaultValue = field.value;
    } catch (error) {
      field.value = field.defaultValue;
      note(`${error.message} ${error.hint ?? ""}`, "bad");
    }
    field.disabled = false;
  };
  return grid("Properties", [
    ["Property", ([property]) => property, { class: "code" }],
    ["Value", ([property, { value }]) => h("input", {
      type: typeof value === "number" ? "number" : "text", value, "aria-label": property, onchange: change_(property),
    })],
    ["Set by", ([, { set_by: by }]) => (by === "default" ? h("span", { class: "muted" }, by) : by)],
  ], found);
}

async function jobs(name) {
  return live(() => get(tablePath(name, "/jobs?limit=200")), (found) => jobGrid("Jobs", found.items), { every: 3 });
}

async function files(name) {
  const refused = live(() => get(tablePath(name, "/refused-files")), ({ items: found }) => grid("Refused files", [
    ["File", (job) => job.subject.split("/").slice(1).join("/"), { class: "code" }],
    ["Why it was refused", (job) => h("p", { class: "reason" }, job.reason), { class: "wide" }],
    ["When", (job) => when(job.updated_ms)],
  ], found, { empty: "No file was refused." }), { every: 3 });
  return h("div", {},
    h("p", { class: "drop" }, "Drop files anywhere on this page, or ", filePicker(name), ". A file that was refused can be dropped again once it is corrected."),
    uploads(name), h("h2", {}, "Refused files"), refused);
}

function actionButton(text, act, done) {
  const button = h("button", { type: "button", onclick: async () => {
    button.disabled = true;
    try {
      const found = await act();
      note(`${done} The request is ${found.state}.`, "good");
    } catch (error) {
      note(`${error.message} ${error.hint ?? ""}`, "bad");
    }
    button.disabled = false;
  } }, text);
  return button;
}
