// Jobs of all tables as they run.

import { get, tablePath } from "/console/api.js";
import { badge, bytes, duration, grid, h, number, when } from "/console/dom.js";
import { eachOf, live } from "/console/live.js";

const STATES = ["", "waiting", "accepted", "assigned", "running", "finished", "failed", "refused", "damaged"];
const EACH = 100; // jobs of each table

/** Return the place of all jobs. */
export async function showJobs() {
  let state = "";
  const place = h("div");
  const refresh = () => place.replaceChildren(live(() => load(state), (found) => jobGrid("Jobs", found, { withTable: true }), { every: 3 }));
  const choice = h("select", { "aria-label": "State of the jobs", onchange: (event) => { state = event.target.value; refresh(); } },
    STATES.map((each) => h("option", { value: each }, each || "in any state")));
  refresh();
  return h("section", {}, h("div", { class: "head" }, h("h1", {}, "Jobs"), choice), place);
}

async function load(state) {
  const { tables } = await get("/tables");
  const query = `?limit=${EACH}&state=${state}`;
  const found = await eachOf(tables, async ({ name }) =>
    (await get(tablePath(name, `/jobs${query}`))).items.map((job) => ({ ...job, table: name })));
  const others = await get(`/jobs${query}`).catch((error) => {
    if (error.status !== 403) throw error;
    return { items: [] }; // these jobs are of no table: only callers who may read all tables see them
  });
  return [...found.flat(), ...others.items].sort((a, b) => b.updated_ms - a.updated_ms);
}

/** Return a table of jobs. */
export function jobGrid(caption, jobs, { withTable = false, empty = "No jobs." } = {}) {
  const right = { class: "right" };
  return grid(caption, [
    ["State", (job) => badge(job.state)],
    ["Kind", (job) => job.kind],
    ...(withTable ? [["Table", (job) => (job.table ? h("a", { href: `#/tables/${encodeURIComponent(job.table)}` }, job.table) : "–")]] : []),
    ["What", (job) => [h("span", { class: "code" }, job.subject || job.id), job.reason ? h("p", { class: "reason" }, job.reason) : null], { class: "wide" }],
    ["Rows", (job) => number(job.rows), right],
    ["Size", (job) => (job.size_bytes ? bytes(job.size_bytes) : "–"), right],
    ["Took", (job) => (job.finished_ms && job.started_ms ? duration((job.finished_ms - job.started_ms) / 1000) : "–"), right],
    ["Attempts", (job) => number(job.attempts), right],
    ["Changed", (job) => when(job.updated_ms)],
  ], jobs, { empty });
}
