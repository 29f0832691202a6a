// The WebSocket of the instance: what has changed, and the pages of queries that take longer. Where
// there is none, or it is closed, the HTTP API is asked instead.

import { Problem, get, tokenOf } from "/console/api.js";
import { parse } from "/console/exact.js";

const OPEN_WAIT = 5_000;
const ANSWER_WAIT = 30_000;
const AGAIN = 30_000; // how long none is tried after one could not be opened

let opening = null; // a promise of the connection; of null if there is none
let failed = -AGAIN;
let names = 0;
const asked = new Map(); // what waits for the answers to a frame, by its id
const seen = new Map(); // what was seen of each path: its digest and its content

async function open() {
  const { url } = await get("/websocket");
  const token = encodeURIComponent(tokenOf());
  const here = `${location.protocol === "https:" ? "wss" : "ws"}://${location.host}`;
  const socket = new WebSocket(url.startsWith("/") ? `${here}${url}?token=${token}` : url);
  socket.onmessage = ({ data }) => {
    const frame = parse(data);
    asked.get(frame.id)?.(frame);
  };
  try {
    await new Promise((resolve, reject) => {
      setTimeout(reject, OPEN_WAIT);
      socket.onopen = resolve;
      socket.onclose = reject;
    });
  } catch (error) {
    socket.close(); // it may still be opening; whatever becomes of it is no news of a later one
    throw error;
  }
  socket.onclose = () => {
    opening = null;
    const closed = { type: "problem", status: 0, detail: "The connection was closed." };
    for (const take of [...asked.values()]) take(closed);
  };
  return socket;
}

/** Return the connection; null if there is none. */
function connection() {
  if (!opening && performance.now() - failed < AGAIN) return null;
  opening ??= open().catch(() => {
    [opening, failed] = [null, performance.now()];
    return null;
  });
  return opening;
}

/** Send a frame, and return what answers it; throw a Problem, or return null without a connection. */
async function exchange(type, fields) {
  const socket = await connection();
  if (!socket) return null;
  const id = String(++names);
  try {
    const found = await new Promise((resolve, reject) => {
      setTimeout(() => reject(new Problem(0, "The instance does not answer.")), ANSWER_WAIT);
      asked.set(id, resolve);
      socket.send(JSON.stringify({ type, id, ...fields }));
    });
    if (found.type === "problem") throw new Problem(found.status, found.detail, found.hint);
    return found;
  } finally {
    asked.delete(id);
  }
}

/** Return what a GET of the API returns; what was seen before is not sent again. */
export async function watch(path) {
  const before = seen.get(path);
  let found;
  try {
    found = await exchange("watch", { path, seen: before?.digest ?? "" });
  } catch (error) {
    if (![0, 413, 500].includes(error.status)) throw error; // else a long answer may come by HTTP
  }
  if (!found) return get(path);
  if (found.type === "changed") seen.set(path, { digest: found.seen, content: found.content });
  return seen.get(path).content;
}

/** Return the rows of a query that is answered later, up to `most`; `progress` is called meanwhile. */
export async function follow(query_id, { most, progress, signal }) {
  const found = { columns: [], rows: [], more: false };
  let after = "";
  for (;;) {
    if (signal.aborted) {
      await exchange("cancel", { query_id }).catch(() => null);
      throw new DOMException("stopped", "AbortError");
    }
    const page = await exchange("page", { query_id, after, pages: 1 });
    if (!page) throw new Problem(0, "The answer is too large for one response.", "Add a LIMIT, or export the rows.");
    if (page.type === "progress") {
      progress(page);
      await new Promise((resolve) => setTimeout(resolve, 1000));
      continue;
    }
    if (page.columns) found.columns = page.columns;
    found.rows.push(...(page.rows ?? []));
    after = page.next;
    found.more = Boolean(after);
    if (!after || found.rows.length >= most) return found;
    progress({ rows: found.rows.length });
  }
}
