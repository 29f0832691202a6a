// All tables, each with its numbers and its health.

import { get, tablePath } from "/console/api.js";
import { badge, grid, h, number, when } from "/console/dom.js";
import { eachOf, live } from "/console/live.js";
import { newTableButton } from "/console/upload.js";

const MOST = 60; // tables whose numbers are asked for

/** Return the place of all tables. */
export async function showTables() {
  let wanted = "";
  const filter = h("input", {
    type: "search", placeholder: "Filter tables", "aria-label": "Filter tables",
    oninput: (event) => {
      wanted = event.target.value.toLowerCase();
      for (const row of list.querySelectorAll("tbody tr")) row.hidden = !row.dataset.name.toLowerCase().includes(wanted);
    },
  });
  const list = live(load, (found) => draw(found, wanted));
  return h("section", {}, h("div", { class: "head" }, h("h1", {}, "Tables"), filter, newTableButton()), list);
}

async function load() {
  const { tables, damaged } = await get("/tables");
  const status = await eachOf(tables.slice(0, MOST), ({ name }) => get(tablePath(name, "/status")).catch((error) => ({ error: error.message })));
  return { tables: tables.map((table, place) => ({ ...table, status: status[place] ?? {} })), damaged };
}

/** Return how a table is: a state, and what it means in words. */
export function health({ online, status }) {
  if (status.error) return ["damaged", status.error];
  if (!online) return ["offline", "files wait until the table is online again"];
  if (status.files_waiting) return ["waiting", `${number(status.files_waiting)} files wait to be ingested`];
  if (status.pending) return ["running", `${number(status.pending)} pieces of work are under way or due`];
  return ["online", "nothing waits"];
}

function draw({ tables, damaged }, wanted) {
  const right = { class: "right" };
  const shown = grid("Tables", [
    ["Name", (table) => h("a", { href: `#/tables/${encodeURIComponent(table.name)}` }, table.name)],
    ["Health", (table) => h("span", { title: health(table)[1] }, badge(health(table)[0]))],
    ["Keys", (table) => [...table.row_keys, ...table.sort_keys].join(", "), { class: "code" }],
    ["Rows", (table) => number(table.status.rows), right],
    ["Shards", (table) => number(table.status.shards), right],
    ["Leaf partitions", (table) => number(table.status.leaf_partitions), right],
    ["Version", (table) => table.status.version ?? "–", right],
    ["Created", (table) => when(table.created_ms)],
  ], tables, {
    empty: "There is no table yet. Drop a file on this page to make one of it.",
    row: (table) => ({ "data-name": table.name, hidden: !table.name.toLowerCase().includes(wanted) }),
  });
  const warning = damaged.map((what) => h("p", { class: "problem" }, `${what} is damaged: run dormouse rebuild.`));
  return h("div", {}, warning, shown);
}
