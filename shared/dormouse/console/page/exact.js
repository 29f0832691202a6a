// JSON whose numbers keep their digits. JSON.parse takes 9007199254740993 for another number, and
// writes 1.0 as 1; what is stored is shown as it is stored.

// A text and, if it is the name of a member, its colon; or a number.
const TOKEN = /("[^"\\]*(?:\\.[^"\\]*)*")(\s*:)?|-?\d+(?:\.\d+)?(?:[eE][-+]?\d+)?/g;

/** A number that JavaScript would write otherwise: calculations use the nearest one, people see its digits. */
class Digits extends Number {
  constructor(text) {
    super(text);
    this.text = text;
  }

  toString() {
    return this.text;
  }
}

/** Read JSON. On the way, numbers are texts that begin with "n", and texts begin with "s". */
export function parse(json) {
  const safe = json.replace(TOKEN, (token, text, colon) => {
    if (colon !== undefined) return token;
    return text === undefined ? `"n${token}"` : `"s${text.slice(1)}`;
  });
  return JSON.parse(safe, (_, value) => {
    if (typeof value !== "string") return value;
    const text = value.slice(1);
    if (value[0] === "s") return text;
    return String(Number(text)) === text ? Number(text) : new Digits(text);
  });
}

/** Write JSON with the digits of its numbers; `indent` as JSON.stringify has it. */
export function stringify(value, indent) {
  const safe = JSON.stringify(value, (_, each) => {
    if (each instanceof Digits) return `n${each}`;
    return typeof each === "string" ? `s${each}` : each;
  }, indent);
  return safe.replace(TOKEN, (token, text, colon) => {
    if (text === undefined || colon !== undefined) return token;
    return text[1] === "n" ? text.slice(2, -1) : `"${text.slice(2)}`;
  });
}
