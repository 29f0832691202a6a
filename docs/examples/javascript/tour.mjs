// Everything that programs do with tables, once: node tour.mjs TABLE
//
// With DORMOUSE_HTTP_TOKEN, requests have that token; without, they are signed with the AWS
// credentials of the environment (aws configure export-credentials --format env).

import { Dormouse, ProblemError, bearer } from "./dormouse.mjs";
import { signer } from "./sigv4.mjs";

const { env } = process;
const authorize = env.DORMOUSE_HTTP_TOKEN
  ? bearer(env.DORMOUSE_HTTP_TOKEN)
  : signer(
      {
        accessKeyId: env.AWS_ACCESS_KEY_ID,
        secretAccessKey: env.AWS_SECRET_ACCESS_KEY,
        sessionToken: env.AWS_SESSION_TOKEN,
      },
      env.AWS_REGION,
    );
const mouse = new Dormouse(env.DORMOUSE_HTTP_API, authorize);
const [table = "readings"] = process.argv.slice(2);

await mouse.createTable({
  name: table,
  schema: "sensor: long, at: timestamp, value: double?, price: decimal(20,4)?, raw: bytes?",
  row_keys: ["sensor"],
  sort_keys: ["at"],
});
const names = (await mouse.tables()).map(({ name }) => name);
console.log(`created: ${names.includes(table)}`);

const SENSOR = 9007199254740993n; // 2^53 + 1, which Number does not have
const rows = [
  {
    sensor: SENSOR,
    at: "2026-01-05T10:00:00.123456Z", // microseconds, which Date does not have
    value: 0.5,
    price: "1234567890123456.7891", // digits that Number does not have
    raw: Buffer.from([0, 255]).toString("base64"),
  },
  { sensor: SENSOR, at: "2026-01-05T11:00:00Z", value: null, price: null, raw: null },
];
let inserted;
for (let time = 0; time < 2; time++) {
  inserted = await mouse.insert(table, rows, `${table}-monday`); // the second time adds nothing
}
await mouse.follow(inserted.location);

const lines = Array.from({ length: 25 }, (_, n) => `${n},2026-01-06 00:00,${n / 4},,`);
const csv = ["sensor,at,value,price,raw", ...lines, ""].join("\n");
const file = await mouse.follow(await mouse.upload(table, "Tuesday's file (ü) +1.csv", csv));
console.log(`file: ${file.state}`);

for await (const row of mouse.query(table, { keys: [[SENSOR]] })) {
  const raw = row.raw === null ? "null" : Buffer.from(row.raw, "base64").toString("hex");
  console.log(`row: ${row.sensor} ${row.at} ${row.value} ${row.price} ${raw}`);
}

const text = `SELECT count(*) AS n, sum(sensor)::BIGINT AS total FROM ${table} WHERE sensor < $1`;
for await (const { n, total } of mouse.sql(text, [10])) {
  console.log(`SQL: ${n} rows, total ${total}`);
}

let count = 0;
for await (const _ of mouse.query(table, { columns: ["sensor"], page_rows: 10 })) count++;
console.log(`pages: ${count} rows`);

const location = await mouse.queryLater(table, { where: "value >= 1" });
let sum = 0;
for await (const { value } of mouse.result(location)) sum += value;
console.log(`later: ${sum}`);

let ingested = 0;
for await (const { rows } of mouse.jobs(table, { kind: "ingest", state: "finished", limit: 1 })) {
  ingested += rows;
}
console.log(`jobs: ${ingested} rows`);

try {
  for await (const _ of mouse.query("nothing", {}));
} catch (error) {
  if (!(error instanceof ProblemError)) throw error;
  console.log(`problem: ${error.status} ${error.detail}`);
}
