// Queries that are answered later: followed to their end, then read from the files of their rows.

import { Problem, ask, get } from "/console/api.js";
import { parse } from "/console/exact.js";

const ANSWER_BYTES = 4_000_000; // of a file that the API itself returns; larger ones come by links to S3

/** Yield the files of a query as responses, in order, when it has ended. Stopped, it is cancelled. */
export async function* filesOf(id, { progress = () => null, signal } = {}) {
  const path = `/queries/${id}`;
  try {
    for (let pause = 200; ; pause = Math.min(pause * 1.5, 2000)) {
      const found = await get(path, { signal });
      if (found.state === "finished") {
        for (const file of found.files) yield await open(path, file, signal);
        return;
      }
      if (["failed", "cancelled"].includes(found.state)) throw new Problem(422, found.reason);
      progress(found);
      await new Promise((resolve) => setTimeout(resolve, pause));
    }
  } catch (error) {
    if (error.name === "AbortError") await ask(path, { method: "DELETE" }).catch(() => null);
    throw error;
  }
}

async function open(path, { url, size_bytes }, signal) {
  if (url.startsWith("/")) return ask(url, { signal });
  if (size_bytes <= ANSWER_BYTES) return ask(`${path}/files/${new URL(url).pathname.split("/").pop()}`, { signal });
  const found = await fetch(url, { signal }).catch((error) => error);
  if (found.ok) return found;
  if (found.name === "AbortError") throw found;
  throw new Problem(0, "The answer is too large for one response.", "Add a LIMIT, or export the rows.");
}

/** Return the rows of a query, up to `most`, when it has ended; `progress` is called meanwhile. */
export async function rowsOf(id, { most, ...options }) {
  const rows = [];
  reading: for await (const file of filesOf(id, options)) {
    for await (const line of linesOf(file)) {
      rows.push(parse(line));
      if (rows.length > most) break reading;
    }
  }
  const columns = Object.keys(rows[0] ?? {}).map((name) => ({ name, type: typeOf(rows, name) }));
  return { columns, rows: rows.slice(0, most), more: rows.length > most };
}

async function* linesOf({ body }) {
  const reader = body.pipeThrough(new TextDecoderStream()).getReader();
  let [rest, isDone] = ["", false];
  try {
    while (!isDone) {
      const { done, value = "" } = await reader.read();
      const lines = (rest + value).split("\n");
      [rest, isDone] = [lines.pop(), done];
      yield* lines;
    }
  } finally {
    reader.cancel(); // of rows beyond those that are shown
  }
}

/** Return a type of Arrow by which values of JSON are shown alike. */
function typeOf(rows, name) {
  const value = rows.map((row) => row[name]).find((each) => each !== null);
  if (typeof value?.valueOf() === "number") return "double";
  return /^\d{4}-\d\d-\d\d/.test(value) ? "timestamp" : "string";
}
