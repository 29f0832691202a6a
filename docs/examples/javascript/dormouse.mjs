// A client of Dormouse's HTTP API, for Node 20 or newer. It has no dependencies.

import { parse, stringify } from "./exact_json.mjs";

const JSON_TYPE = "application/json";
const JSON_LINES = "application/x-ndjson";
const UNDER_WAY = new Set(["waiting", "accepted", "running"]);
const FAILED = new Set(["failed", "refused", "cancelled"]);

/** What the API answers to a request that it does not carry out (RFC 9457). */
export class ProblemError extends Error {
  constructor(status, detail, hint = "") {
    super(hint ? `${status}: ${detail}; ${hint}` : `${status}: ${detail}`);
    this.name = "ProblemError";
    Object.assign(this, { status, detail, hint });
  }

  static async of(response) {
    const text = await response.text();
    let found = {};
    try {
      found = JSON.parse(text);
    } catch {
      // no JSON: it was answered by something on the way, whose text is the detail
    }
    // API Gateway's own refusals, of a signature or too many requests, have only a message.
    const detail = found.detail ?? found.message ?? (text || response.statusText);
    return new ProblemError(response.status, detail, found.hint);
  }
}

/** What was accepted has failed since, or was refused or cancelled. */
export class FailedError extends Error {
  constructor(location, { state, reason }) {
    super(`${location} ${state}: ${reason}`);
    this.name = "FailedError";
    Object.assign(this, { location, state, reason });
  }
}

/** Return what adds the header of a token. */
export const bearer = (token) => (method, url, headers) => {
  headers.authorization = `Bearer ${token}`;
};

export class Dormouse {
  #api;
  #authorize;

  /** `authorize` is what `bearer` or `signer` returns. */
  constructor(api, authorize) {
    this.#api = new URL(api);
    this.#authorize = authorize;
  }

  async tables() {
    const response = await this.#send("GET", "/tables");
    return (await response.json()).tables;
  }

  /** Create a table, and wait until it is there. */
  async createTable(table, idempotencyKey = crypto.randomUUID()) {
    const headers = { "idempotency-key": idempotencyKey };
    const response = await this.#send("POST", "/tables", { json: table, headers });
    return this.follow(response.headers.get("location"));
  }

  /** Add rows; they are durable when this returns. Sent again under one key, they add nothing. */
  async insert(table, rows, idempotencyKey = crypto.randomUUID()) {
    const headers = { "idempotency-key": idempotencyKey };
    const path = `/tables/${encodeURIComponent(table)}/rows`;
    const response = await this.#send("POST", path, { json: rows, headers });
    return response.json();
  }

  /** Upload a file, which becomes rows; return where that is followed. */
  async upload(table, name, content) {
    const path = `/tables/${encodeURIComponent(table)}/files`;
    const response = await this.#send("POST", path, { json: { name } });
    const { url, method, location } = await response.json();
    await this.#send(method, url, { body: content });
    return location;
  }

  /** Yield the jobs of a table, page by page; `filter` has their kind, their state, both or none. */
  async *jobs(table, filter = {}) {
    for (let after = ""; ; ) {
      const query = Object.entries({ ...filter, after }).map((each) =>
        each.map(encodeURIComponent).join("="),
      );
      const path = `/tables/${encodeURIComponent(table)}/jobs?${query.join("&")}`;
      const page = await (await this.#send("GET", path)).json();
      yield* page.items;
      after = page.next;
      if (!after) return;
    }
  }

  /** Yield the rows of a question, page by page: all are of the version that the first one read. */
  async *query(table, question) {
    const path = `/tables/${encodeURIComponent(table)}/query`;
    let after = "";
    do {
      const response = await this.#send("POST", path, { json: { ...question, after } });
      if (response.status === 202) {
        yield* this.result(response.headers.get("location"));
        return;
      }
      const page = parse(await response.text());
      yield* page.rows;
      after = page.next;
    } while (after);
  }

  /** Let a question be answered as files, however many rows there are; return where it is followed. */
  async queryLater(table, question, idempotencyKey = crypto.randomUUID()) {
    const path = `/tables/${encodeURIComponent(table)}/query`;
    const headers = {
      accept: JSON_LINES,
      prefer: "respond-async",
      "idempotency-key": idempotencyKey,
    };
    const response = await this.#send("POST", path, { json: question, headers });
    return response.headers.get("location");
  }

  /** Yield the rows of a statement; what is too large for one answer comes as files. */
  async *sql(text, parameters = []) {
    const response = await this.#send("POST", "/sql", { json: { text, parameters } });
    if (response.status === 202) yield* this.result(response.headers.get("location"));
    else yield* parse(await response.text()).rows;
  }

  /** Wait for a query that is answered later, and yield the rows of its files. */
  async *result(location) {
    const { files } = await this.follow(location);
    for (const { url } of files) {
      const response = await this.#send("GET", url);
      let rest = "";
      for await (const text of response.body.pipeThrough(new TextDecoderStream())) {
        const lines = (rest + text).split("\n");
        rest = lines.pop();
        for (const line of lines) yield parse(line);
      }
    }
  }

  /** Wait until what a location shows has ended, and return it. */
  async follow(location, { timeoutMs = 300_000 } = {}) {
    const deadline = Date.now() + timeoutMs;
    for (let pauseMs = 100; ; pauseMs = Math.min(2 * pauseMs, 2000)) {
      const found = await (await this.#send("GET", location)).json();
      if (FAILED.has(found.state)) throw new FailedError(location, found);
      if (!UNDER_WAY.has(found.state)) return found;
      if (Date.now() > deadline) throw new Error(`${location} is still ${found.state}`);
      await new Promise((resolve) => setTimeout(resolve, pauseMs));
    }
  }

  /** Send a request to a path of the API, or to a link that needs neither token nor signature. */
  async #send(method, target, { json, body, headers = {} } = {}) {
    const url = new URL(target, this.#api);
    const sent = { ...headers };
    if (json !== undefined) {
      sent["content-type"] = JSON_TYPE;
      body = stringify(json);
    }
    if (url.origin === this.#api.origin) this.#authorize(method, url, sent, body);
    const response = await fetch(url, { method, headers: sent, body });
    if (!response.ok) throw await ProblemError.of(response);
    return response;
  }
}
