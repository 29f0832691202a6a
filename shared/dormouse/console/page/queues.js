// Queues, and their dead letters: what they say, why they failed, and the way back.

import { all, change, get } from "/console/api.js";
import { parse, stringify } from "/console/exact.js";
import { duration, grid, h, note, number, when } from "/console/dom.js";
import { live, problem } from "/console/live.js";

/** Return the place of all queues, or of the dead letters of one. */
export async function showQueues(queue) {
  if (queue) return showLetters(queue);
  const right = { class: "right" };
  const draw = ({ queues, note: why }) => h("div", {}, why ? h("p", { class: "muted" }, why) : null, grid("Queues", [
    ["Queue", (each) => each.queue, { class: "code" }],
    ["Waiting", (each) => number(each.waiting), right],
    ["In flight", (each) => number(each.in_flight), right],
    ["Delayed", (each) => number(each.delayed), right],
    ["Oldest", (each) => (each.oldest_seconds === null ? "–" : duration(each.oldest_seconds)), right],
    ["Dead letters", (each) => h("a", { href: `#/queues/${each.queue}`, class: each.dead ? "alarm" : "", "aria-label": `${each.dead} dead letters of ${each.queue}` }, number(each.dead)), right],
  ], queues));
  return h("section", {}, h("div", { class: "head" }, h("h1", {}, "Queues")), live(() => get("/queues"), draw));
}

async function showLetters(queue) {
  const path = `/queues/${encodeURIComponent(queue)}`;
  const chosen = new Set();
  const place = h("div");
  const again = h("button", { type: "button", onclick: () => redrive() }, "Send all back");
  const label = () => again.replaceChildren(chosen.size ? `Send ${chosen.size} back` : "Send all back");
  let letters = [];

  async function load() {
    letters = await all(`${path}/dead-letters`);
    again.disabled = !letters.length;
    place.replaceChildren(grid("Dead letters", [
      ["Choose", (each) => h("input", {
        type: "checkbox", "aria-label": `Choose the dead letter ${each.id}`,
        onchange: (event) => { chosen[event.target.checked ? "add" : "delete"](each.id); label(); },
      })],
      ["Sent", (each) => when(each.sent_ms)],
      ["Received", (each) => number(each.receives), { class: "right" }],
      ["Why, and what", (each) => [h("p", { class: "reason" }, each.reason), h("pre", {}, pretty(each.body))], { class: "wide" }],
    ], letters, { empty: "No message of this queue failed for good." }));
  }

  async function redrive() {
    again.disabled = true;
    try {
      const found = await change(`${path}/redrive`, { ids: [...chosen] });
      note(`Sent back: the request is ${found.state}.`);
      chosen.clear();
      label();
      await load();
    } catch (error) {
      note(`${error.message} ${error.hint ?? ""}`, "bad");
      again.disabled = false;
    }
  }

  await load().catch((error) => place.replaceChildren(problem(error)));
  return h("section", {},
    h("div", { class: "head" }, h("h1", {}, `Dead letters of ${queue}`), again, h("a", { href: "#/queues" }, "All queues")), place);
}

function pretty(body) {
  try {
    return stringify(parse(body), 1);
  } catch {
    return body; // a message that is no JSON failed for just that
  }
}
