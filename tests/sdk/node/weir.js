// The gateway under test and the provider behind it. The integration binary (tests/integration/node_sdk.rs) starts both
// and sets the environment.

import assert from "node:assert/strict";
import { existsSync, readFileSync } from "node:fs";
import { setTimeout as pause } from "node:timers/promises";

export const weir = {
  baseUrl: process.env.WEIR_BASE_URL,
  providerUrl: process.env.WEIR_PROVIDER_URL,
  key: process.env.WEIR_KEY,
  messagesModel: process.env.WEIR_MESSAGES_MODEL,
  deepseekModel: process.env.WEIR_DEEPSEEK_MODEL,
  responsesModel: process.env.WEIR_RESPONSES_MODEL,
  geminiModel: process.env.WEIR_GEMINI_MODEL,
};

// The key with another last character: its checksum does not fit.
export const wrongKey = weir.key.slice(0, -1) + (weir.key.endsWith("a") ? "b" : "a");

// The ledger's closing lines: what the provider would have billed, one per answer.
function ledgerEnds() {
  if (!existsSync(process.env.WEIR_LEDGER)) return [];
  const lines = readFileSync(process.env.WEIR_LEDGER, "utf8").split("\n").filter(Boolean);
  return lines.map((line) => JSON.parse(line)).filter((line) => line.event === "end");
}

// Makes the call and returns its result and the one ledger line it caused.
export async function billedBy(call) {
  const before = ledgerEnds().length;
  const result = await call();
  const deadline = Date.now() + 20_000;
  while (ledgerEnds().length === before) {
    assert.ok(Date.now() < deadline, "the provider's ledger has no line for this request");
    await pause(3);
  }
  const ends = ledgerEnds();
  assert.equal(ends.length, before + 1, "one call, one request at the provider");
  return [result, ends.at(-1)];
}
