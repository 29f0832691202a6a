// Completion of SQL: tables, their columns, and words of the language, below the cursor's word.

import { get, tablePath } from "/console/api.js";
import { h, note } from "/console/dom.js";

const WORDS = `SELECT FROM WHERE GROUP BY ORDER LIMIT OFFSET HAVING JOIN LEFT RIGHT FULL OUTER INNER CROSS ON USING AS AND OR NOT IN
BETWEEN LIKE ILIKE IS NULL DISTINCT UNION ALL EXCEPT INTERSECT WITH CASE WHEN THEN ELSE END CAST EXISTS DESC ASC EXPLAIN INTERVAL
VERSION TIMESTAMP OF FOR count(*) sum( avg( min( max( stddev( median( coalesce( date_trunc( now() round( lower( upper( row_number() OVER PARTITION`
  .split(/\s+/);
const RESERVED = new Set(`all analyse analyze and anti any array as asc asof asymmetric at authorization binary both by case cast check collate collation
column columns concurrently constraint create cross default deferrable desc describe distinct do else end except false fetch for
foreign freeze from full generated glob group having ilike in initially inner intersect into is isnull join lambda lateral
leading left like limit map natural not notnull null offset on only or order outer overlaps pivot pivot_longer pivot_wider
placing positional primary qualify references returning right select semi show similar some struct summarize symmetric table
tablesample then to trailing true try_cast tuple union unique unpack unpivot using variadic verbose when where window with`
  .split(/\s+/)); // by DuckDB
const MOST = 8;

/** Return a name as SQL has it: quoted if it has to be. */
export function quoted(name) {
  return /^[a-z_][a-z0-9_]*$/.test(name) && !RESERVED.has(name) ? name : `"${name.replaceAll('"', '""')}"`;
}

/** Return words that begin with what was typed: columns of the tables of the text come first. */
export function suggestions(typed, text, tables, columns) {
  if (!typed) return [];
  const used = tables.filter((name) => new RegExp(`(^|[^\\w.])"?${name.replace(/[.*+?^${}()|[\]\\]/g, "\\$&")}"?($|[^\\w.])`).test(text));
  const names = [...new Set([...used.flatMap((name) => columns.get(name) ?? []), ...tables])].map(quoted);
  const low = typed.toLowerCase();
  const fits = (word) => word.toLowerCase().replace(/^"/, "").startsWith(low.replace(/^"/, "")) && word !== typed;
  return [...new Set([...names.filter(fits), ...WORDS.filter(fits)])].slice(0, MOST);
}

/** Complete what is typed into a field; return the list of suggestions, which belongs below it. */
export function completing(field) {
  const list = h("ul", { id: "suggestions", role: "listbox", "aria-label": "Suggestions", hidden: true });
  const columns = new Map();
  let tables = [];
  let chosen = -1;
  get("/tables").then(async (found) => {
    tables = found.tables.map(({ name }) => name);
    for (const name of tables.slice(0, 50)) {
      const table = await get(tablePath(name)).catch(() => null);
      if (table) columns.set(name, table.fields.map((each) => each.name));
    }
  }).catch((error) => note(`Names are not completed: ${error.message}`, "bad"));

  const typed = () => /[\w."]*$/.exec(field.value.slice(0, field.selectionStart))[0].split(".").pop();
  function close() {
    list.hidden = true;
    chosen = -1;
    field.removeAttribute("aria-activedescendant");
  }
  function choose(place) {
    chosen = place;
    [...list.children].forEach((item, at) => item.setAttribute("aria-selected", String(at === place)));
    field.setAttribute("aria-activedescendant", list.children[place].id);
  }
  function take(word) {
    const start = field.selectionStart - typed().length;
    field.setRangeText(word, start, field.selectionStart, "end");
    field.dispatchEvent(new Event("input")); // as if it was typed; what that suggests is not wanted
    close();
    field.focus();
  }
  field.addEventListener("input", () => {
    const found = suggestions(typed(), field.value, tables, columns);
    list.replaceChildren(...found.map((word, at) => h("li", {
      role: "option", id: `suggestion-${at}`, "aria-selected": "false", onmousedown: (event) => { event.preventDefault(); take(word); },
    }, word)));
    if (found.length) list.hidden = false;
    else close();
  });
  field.addEventListener("blur", close);
  field.addEventListener("keydown", (event) => {
    if (list.hidden || event.ctrlKey || event.metaKey) return;
    const count = list.children.length;
    if (event.key === "ArrowDown") choose((chosen + 1) % count);
    else if (event.key === "ArrowUp") choose((chosen + count - 1) % count);
    else if (event.key === "Tab" || (event.key === "Enter" && chosen >= 0)) take(list.children[Math.max(chosen, 0)].textContent);
    else if (event.key === "Escape") close();
    else return;
    event.preventDefault();
  });
  field.setAttribute("aria-autocomplete", "list");
  field.setAttribute("aria-controls", "suggestions");
  return list;
}
