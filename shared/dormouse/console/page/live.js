// Parts of the page that show what changes: they ask again and again, while anybody can see them.

import { h } from "/console/dom.js";

/** Return an element for an error: what is wrong, and what to do. */
export function problem(error) {
  const hint = error.status === 401 ? "Open the address again that the server printed: it has the token." : error.hint;
  return h("div", { class: "problem", role: "alert" }, h("p", {}, error.message), hint ? h("p", { class: "muted" }, hint) : null);
}

/**
 * Return an element that shows what `load` returns, as `draw` draws it, and asks again every few
 * seconds. What has not changed is not drawn again, so that focus and selection stay.
 */
export function live(load, draw, { every = 4 } = {}) {
  const place = h("div", { class: "live", "aria-busy": "true" });
  let shown;
  let wasThere = false;
  async function step() {
    if (place.isConnected) wasThere = true;
    else if (wasThere) return;
    if (!document.hidden || shown === undefined) {
      try {
        const found = await load();
        const text = JSON.stringify(found);
        if (text !== shown && !isBeingUsed(place)) {
          shown = text;
          keepFocus(place, () => place.replaceChildren(draw(found)));
        }
      } catch (error) {
        if (shown !== "") place.replaceChildren(problem(error));
        shown = "";
      }
      place.removeAttribute("aria-busy");
    }
    setTimeout(step, every * 1000);
  }
  step();
  return place;
}

/** Return whether something is typed or chosen in a place just now. */
function isBeingUsed(place) {
  const active = document.activeElement;
  return place.contains(active) && ["INPUT", "SELECT", "TEXTAREA"].includes(active.tagName);
}

function keepFocus(place, redraw) {
  const active = document.activeElement;
  const href = place.contains(active) ? active.getAttribute("href") : null;
  redraw();
  if (!href) return;
  [...place.querySelectorAll("[href]")].find((each) => each.getAttribute("href") === href)?.focus({ preventScroll: true });
}

/** Do something for each item, a few at a time; return the results in order. */
export async function eachOf(items, work, side = 4) {
  const found = new Array(items.length);
  let next = 0;
  async function worker() {
    while (next < items.length) {
      const place = next++;
      found[place] = await work(items[place]);
    }
  }
  await Promise.all(Array.from({ length: Math.min(side, items.length) }, worker));
  return found;
}
