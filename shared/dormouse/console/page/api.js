// Requests to the HTTP API. The token comes in the fragment of the address, which no request carries.

import { parse } from "/console/exact.js";

const TOKEN = "dormouse-token";
const LONGEST_WAIT = 120_000;

/** An error as the API describes it: what is wrong, and what to do. */
export class Problem extends Error {
  constructor(status, detail, hint = "") {
    super(detail);
    Object.assign(this, { status, hint });
  }
}

/** Take the token out of the address, so that it is neither shown nor kept in the history. */
export function takeToken() {
  const found = /^#token=([^/]+)(\/.*)?$/.exec(location.hash);
  if (!found) return;
  sessionStorage.setItem(TOKEN, decodeURIComponent(found[1]));
  history.replaceState(null, "", `#${found[2] ?? "/"}`);
}

/** Ask the API; return its response, or throw a Problem. */
export async function ask(path, { method = "GET", body, headers = {}, signal } = {}) {
  const token = sessionStorage.getItem(TOKEN);
  const sent = { accept: "application/json", ...headers };
  if (token) sent.authorization = `Bearer ${token}`;
  let response;
  try {
    response = await fetch(path, { method, body, headers: sent, signal });
  } catch (error) {
    if (error.name === "AbortError") throw error;
    throw new Problem(0, "The server does not answer.", "Is it still running?");
  }
  if (response.ok) return response;
  const problem = await response.json().catch(() => ({}));
  throw new Problem(response.status, problem.detail ?? problem.message ?? response.statusText, problem.hint);
}

/** Ask the API; return what it answers in JSON. */
export async function get(path, options) {
  return parse(await (await ask(path, options)).text());
}

/** Send JSON; return what is answered in JSON. */
export async function send(path, body, { method = "POST", signal, headers = {} } = {}) {
  return get(path, { method, body: JSON.stringify(body), headers: { "content-type": "application/json", ...headers }, signal });
}

/** Return all items of a list that comes in pages, up to `most`. */
export async function all(path, most = 5000) {
  const found = [];
  let after = "";
  do {
    const joint = path.includes("?") ? "&" : "?";
    const page = await get(after ? `${path}${joint}after=${encodeURIComponent(after)}` : path);
    found.push(...page.items);
    after = page.next;
  } while (after && found.length < most);
  return found;
}

/** Return the path of a table. */
export function tablePath(name, rest = "") {
  return `/tables/${encodeURIComponent(name)}${rest}`;
}

/** Send a request that changes something, follow it, and return how it ended; throw if it failed. */
export async function change(path, body, method = "POST") {
  const { location } = await send(path, body, { method });
  for (let pause = 200, waited = 0; waited < LONGEST_WAIT; pause = Math.min(pause * 1.5, 3000)) {
    const found = await get(location);
    if (["failed", "refused"].includes(found.state)) throw new Problem(422, found.reason || `It ${found.state}.`);
    if (found.state !== "waiting") return found;
    await new Promise((resolve) => setTimeout(resolve, pause));
    waited += pause;
  }
  throw new Problem(0, "The request is still waiting.", "Look at the queue admin: is anything carrying out requests?");
}
