// The frame of the console: places by the fragment of the address, keys, light and dark.

import { takeToken } from "/console/api.js";
import { h } from "/console/dom.js";
import { problem } from "/console/live.js";
import { showJobs } from "/console/jobs.js";
import { showQuery } from "/console/query.js";
import { showQueues } from "/console/queues.js";
import { showTable } from "/console/table.js";
import { showTables } from "/console/tables.js";
import { takeDrops } from "/console/upload.js";

const PLACES = [
  { name: "Tables", hash: "#/", key: "t" },
  { name: "Query", hash: "#/query", key: "q" },
  { name: "Jobs", hash: "#/jobs", key: "j" },
  { name: "Queues", hash: "#/queues", key: "d" },
];
const KEYS = [
  ...PLACES.map(({ name, key }) => [`g ${key}`, `go to ${name.toLowerCase()}`]),
  ["/", "go to the first field"],
  ["Ctrl Enter", "run the statement"],
  ["?", "these keys"],
];

/** Return what shows a place: the parts of the fragment, and what its question mark is followed by. */
async function view([place = "", ...rest], parameters) {
  if (place === "") return showTables();
  if (place === "tables" && rest.length) return showTable(rest[0], rest[1] ?? "overview");
  if (place === "query") return showQuery(parameters);
  if (place === "jobs") return showJobs();
  if (place === "queues") return showQueues(rest[0] ?? "");
  return h("p", {}, "There is no such place. ", h("a", { href: "#/" }, "All tables"));
}

let shown = 0;

async function go() {
  takeToken();
  const turn = ++shown;
  const [path, query = ""] = location.hash.replace(/^#\/?/, "").split("?");
  const parts = path.split("/").filter(Boolean).map(decodeURIComponent);
  const current = parts[0] === "tables" || !parts.length ? "#/" : `#/${parts[0]}`;
  for (const link of document.querySelectorAll("#places a")) {
    if (link.getAttribute("href") === current) link.setAttribute("aria-current", "page");
    else link.removeAttribute("aria-current");
  }
  document.title = [...parts.slice(-2).reverse(), "Dormouse"].join(" · ");
  let found;
  try {
    found = await view(parts, new URLSearchParams(query));
  } catch (error) {
    found = problem(error);
  }
  if (turn === shown) document.getElementById("main").replaceChildren(found);
}

function takeKeys() {
  let before = "";
  document.addEventListener("keydown", (event) => {
    const isTyping = event.target.closest?.("input, textarea, select, dialog");
    if (isTyping || event.ctrlKey || event.metaKey || event.altKey) return;
    const place = before === "g" && PLACES.find(({ key }) => key === event.key);
    before = event.key;
    if (place) location.hash = place.hash;
    else if (event.key === "?") help();
    else if (event.key === "/") {
      document.querySelector("main input, main textarea")?.focus();
      event.preventDefault();
    }
  });
}

function help() {
  const rows = KEYS.map(([key, text]) => h("tr", {}, h("th", { scope: "row" }, h("kbd", {}, key)), h("td", {}, text)));
  const dialog = h("dialog", { "aria-label": "Keys", onclose: () => dialog.remove() },
    h("h2", {}, "Keys"), h("table", {}, h("tbody", {}, rows)),
    h("form", { method: "dialog" }, h("button", {}, "Close")));
  document.body.append(dialog);
  dialog.showModal();
}

function takeTheme() {
  const root = document.documentElement;
  const saved = localStorage.getItem("dormouse-theme");
  if (saved) root.dataset.theme = saved;
  document.getElementById("theme").addEventListener("click", () => {
    const isDark = root.dataset.theme ? root.dataset.theme === "dark" : matchMedia("(prefers-color-scheme: dark)").matches;
    root.dataset.theme = isDark ? "light" : "dark";
    localStorage.setItem("dormouse-theme", root.dataset.theme);
  });
}

function begin() {
  document.getElementById("places").append(...PLACES.map(({ name, hash }) => h("a", { href: hash }, name)));
  document.querySelector(".skip").addEventListener("click", (event) => {
    event.preventDefault();
    document.getElementById("main").focus();
  });
  takeTheme();
  takeKeys();
  takeDrops(() => /^#\/tables\/([^/?]+)/.exec(location.hash)?.[1] ?? "");
  addEventListener("hashchange", go);
  go();
}

begin();
