// JSON whose whole numbers keep all their digits: JSON.parse rounds those beyond 2^53, such as many
// of 64 bits. Whole numbers become BigInt, however small, so that a column has one type; numbers
// with a fraction or an exponent become Number. Text is text: decimals, times and bytes are.

// A text and, if it is the name of a member, its colon; or a number.
const TOKEN = /("[^"\\]*(?:\\.[^"\\]*)*")(\s*:)?|-?\d+(?:\.\d+)?(?:[eE][-+]?\d+)?/g;
const WHOLE = /^-?\d+$/;

/** Read JSON. On the way, whole numbers are texts that begin with "n", and texts begin with "s". */
export function parse(json) {
  const safe = json.replace(TOKEN, (token, text, colon) => {
    if (colon !== undefined) return token;
    if (text !== undefined) return `"s${text.slice(1)}`;
    return WHOLE.test(token) ? `"n${token}"` : token;
  });
  return JSON.parse(safe, (_, value) => {
    if (typeof value !== "string") return value;
    return value[0] === "n" ? BigInt(value.slice(1)) : value.slice(1);
  });
}

/** Write JSON, with BigInt as whole numbers. */
export function stringify(value) {
  const safe = JSON.stringify(value, (_, each) => {
    if (typeof each === "bigint") return `n${each}`;
    return typeof each === "string" ? `s${each}` : each;
  });
  return safe.replace(TOKEN, (token, text, colon) => {
    if (text === undefined || colon !== undefined) return token;
    return text[1] === "n" ? text.slice(2, -1) : `"${text.slice(2)}`;
  });
}
