// Files: dropped on the page, sent, and followed until they are rows or refused.

import { ask, change, get, send, tablePath } from "/console/api.js";
import { badge, bytes, grid, h, note } from "/console/dom.js";

const SAMPLE_BYTES = 2_000_000; // of a file that a table is made of; a request takes 4 MB, in base64
const followed = new Map(); // uploads of this page, by table
const watchers = new Set(); // what shows them

function changed() {
  for (const watcher of [...watchers]) watcher();
}

/** Send a file to a table, and follow it. */
async function upload(table, file) {
  const item = { name: file.name, size: file.size, state: "uploading", reason: "" };
  followed.set(table, [item, ...(followed.get(table) ?? [])]);
  const become = (state, reason = "") => { Object.assign(item, { state, reason }); changed(); };
  changed();
  try {
    const { url, location } = await send(tablePath(table, "/files"), { name: file.name });
    if (url.startsWith("/")) await ask(url, { method: "PUT", body: file, headers: { "content-type": "application/octet-stream" } });
    else if (!(await fetch(url, { method: "PUT", body: file })).ok) throw new Error("S3 did not take the file.");
    become("waiting");
    for (let pause = 300; item.state === "waiting"; pause = Math.min(pause * 1.3, 3000)) {
      await new Promise((resolve) => setTimeout(resolve, pause));
      const found = await get(location);
      become(found.state, found.reason);
    }
    note(item.state === "ingested" ? `${file.name} is rows of ${table}.` : `${file.name} was refused: ${item.reason}`, item.state === "ingested" ? "good" : "bad");
  } catch (error) {
    become("failed", `${error.message} ${error.hint ?? ""}`);
    note(`${file.name}: ${item.reason}`, "bad");
  }
}

/** Send files to a table, and show them. */
async function uploadAll(table, files) {
  location.hash = `#/tables/${encodeURIComponent(table)}/files`;
  for (const file of files) await upload(table, file);
}

/** Return what shows the files that this page has sent to a table. */
export function uploads(table) {
  const place = h("div", { class: "uploads" });
  const draw = () => {
    if (place.isConnected || !place.childNodes.length) {
      const shown = (followed.get(table) ?? []).filter((item) => item.state !== "refused"); // that is told below, of all files
      place.replaceChildren(grid("Files of this page", [
        ["File", (item) => item.name, { class: "code" }], ["Size", (item) => bytes(item.size), { class: "right" }],
        ["State", (item) => badge(item.state)], ["", (item) => h("p", { class: "reason" }, item.reason), { class: "wide" }],
      ], shown, { empty: "No file is on its way." }));
    } else watchers.delete(draw);
  };
  draw();
  watchers.add(draw);
  return place;
}

/** Return a button that asks for files to send. */
export function filePicker(table) {
  const field = h("input", { type: "file", multiple: true, class: "unseen", tabindex: "-1", "aria-label": "Files to send", onchange: () => uploadAll(table, [...field.files]) });
  return h("span", {}, h("button", { type: "button", class: "link", onclick: () => field.click() }, "choose them"), field);
}

/** Return a button that makes a table of a file. */
export function newTableButton() {
  const field = h("input", { type: "file", class: "unseen", tabindex: "-1", "aria-label": "A file to make a table of", onchange: () => askTable([...field.files]) });
  return h("span", {}, h("button", { type: "button", onclick: () => field.click() }, "New table from a file"), field);
}

/** Take files that are dropped anywhere; `current` returns the table that is looked at. */
export function takeDrops(current) {
  const hasFiles = (event) => [...(event.dataTransfer?.types ?? [])].includes("Files");
  addEventListener("dragover", (event) => {
    if (!hasFiles(event)) return;
    event.preventDefault();
    document.body.classList.add("dropping");
  });
  addEventListener("dragleave", (event) => {
    if (!event.relatedTarget) document.body.classList.remove("dropping");
  });
  addEventListener("drop", (event) => {
    if (!hasFiles(event)) return;
    event.preventDefault();
    document.body.classList.remove("dropping");
    const files = [...event.dataTransfer.files];
    const table = decodeURIComponent(current());
    if (table) uploadAll(table, files);
    else askTable(files);
  });
}

/** Ask which table files are for: one that there is, or a new one, with columns as in the first file. */
async function askTable(files) {
  if (!files.length) return;
  const { tables } = await get("/tables").catch((error) => {
    note(`Tables are not listed: ${error.message}`, "bad");
    return { tables: [] };
  });
  const field = (label, props) => h("label", {}, label, h("input", { type: "text", spellcheck: "false", autocapitalize: "off", ...props }));
  const table = h("select", { "aria-label": "Table", onchange: () => { made.hidden = table.value !== ""; } },
    h("option", { value: "" }, "a new table"), tables.map(({ name }) => h("option", {}, name)));
  const made = h("div", { class: "fields" },
    field("Name", { name: "name", value: files[0].name.replace(/\..*$/, "").replace(/[^\w-]/g, "_") }),
    field("Row keys, in order", { name: "row_keys", placeholder: "carrier, flight" }),
    field("Sort keys, in order", { name: "sort_keys", placeholder: "none" }));
  const wrong = h("p", { class: "problem", role: "alert", hidden: true });
  const dialog = h("dialog", { "aria-label": "Where the files go", onclose: () => dialog.remove() },
    h("h2", {}, files.map((file) => file.name).join(", ")), h("label", {}, "Into", table), made, wrong,
    h("form", { method: "dialog", class: "actions", onsubmit: (event) => { event.preventDefault(); go(); } },
      h("button", { class: "primary" }, "Send"), h("button", { type: "button", onclick: () => dialog.close() }, "Cancel")));

  async function go() {
    const value = (name) => made.querySelector(`[name=${name}]`).value.trim();
    const listed = (name) => value(name).split(",").map((each) => each.trim()).filter(Boolean);
    try {
      const name = table.value || value("name");
      if (!table.value) {
        const sample = { name: files[0].name, content: await sampleOf(files[0]) };
        await change("/tables", { name, sample, row_keys: listed("row_keys"), sort_keys: listed("sort_keys") });
      }
      dialog.close();
      uploadAll(name, files);
    } catch (error) {
      wrong.replaceChildren(`${error.message} ${error.hint ?? ""}`);
      wrong.hidden = false;
    }
  }
  document.body.append(dialog);
  dialog.showModal();
}

/** Return the beginning of a file in base64: whole lines of text, or the whole of other files. */
async function sampleOf(file) {
  let found = new Uint8Array(await file.slice(0, SAMPLE_BYTES).arrayBuffer());
  if (file.size > SAMPLE_BYTES) {
    if (!/\.(csv|jsonl|json)$/i.test(file.name)) {
      throw new Error("A table is made of a file of up to 2 MB, or of CSV or JSON lines. Create it by its columns first.");
    }
    found = found.slice(0, found.lastIndexOf(10) + 1);
  }
  let text = "";
  for (let at = 0; at < found.length; at += 32768) text += String.fromCharCode(...found.subarray(at, at + 32768));
  return btoa(text);
}
