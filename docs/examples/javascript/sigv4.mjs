// Signatures of AWS, version 4, for an HTTP API whose callers IAM knows. The AWS SDK has the same
// as SignatureV4 of @smithy/signature-v4.

import { createHash, createHmac } from "node:crypto";

const SERVICE = "execute-api";
const ALGORITHM = "AWS4-HMAC-SHA256";

/** Return what adds a signature to the headers of each request. */
export function signer({ accessKeyId, secretAccessKey, sessionToken }, region, now = () => new Date()) {
  return (method, url, headers, body) => {
    const time = now().toISOString().replace(/[-:]|\.\d{3}/g, "");
    const signed = { host: url.host, "x-amz-date": time };
    if (sessionToken) signed["x-amz-security-token"] = sessionToken;
    const names = Object.keys(signed).sort();
    const canonical = [
      method,
      // What the URL has is encoded once more, as every service but S3 wants it.
      url.pathname.split("/").map(encode).join("/"),
      canonicalQuery(url),
      ...names.map((name) => `${name}:${signed[name]}`),
      "",
      names.join(";"),
      sha256(body ?? ""),
    ].join("\n");
    const day = time.slice(0, 8);
    const scope = `${day}/${region}/${SERVICE}/aws4_request`;
    const text = [ALGORITHM, time, scope, sha256(canonical)].join("\n");
    const key = [day, region, SERVICE, "aws4_request"].reduce(hmac, `AWS4${secretAccessKey}`);
    const { host, ...added } = signed; // fetch sends the header Host by itself
    Object.assign(headers, added, {
      authorization:
        `${ALGORITHM} Credential=${accessKeyId}/${scope}, ` +
        `SignedHeaders=${names.join(";")}, Signature=${hmac(key, text).toString("hex")}`,
    });
  };
}

function canonicalQuery(url) {
  const pairs = [...url.searchParams].map(([name, value]) => [encode(name), encode(value)]);
  return pairs
    .sort(([a, x], [b, y]) => (a === b ? compare(x, y) : compare(a, b)))
    .map((pair) => pair.join("="))
    .join("&");
}

const compare = (a, b) => (a < b ? -1 : a > b ? 1 : 0);

/** Encode all but A-Z a-z 0-9 - . _ ~ */
function encode(text) {
  const escape = (c) => `%${c.charCodeAt(0).toString(16).toUpperCase()}`;
  return encodeURIComponent(text).replace(/[!'()*]/g, escape);
}

const sha256 = (content) => createHash("sha256").update(content).digest("hex");
const hmac = (key, text) => createHmac("sha256", key).update(text).digest();
