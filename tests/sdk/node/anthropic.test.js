// The anthropic SDK for Node (Bearer, version 2026-10-21) through the gateway.

import assert from "node:assert/strict";
import { test } from "node:test";

import Anthropic from "@anthropic-ai/sdk";

import { CUTS, CUT_UNARY, HALF_EVENT, IN_BAND, TEXT, USAGES } from "./cases.js";
import { billedBy, weir, wrongKey } from "./weir.js";

const WEATHER = {
  name: "get_weather",
  description: "The weather of a city",
  input_schema: { type: "object", properties: { city: { type: "string" } }, required: ["city"] },
};

function client({ key = weir.key, url = weir.baseUrl, ...more } = {}) {
  return new Anthropic({ apiKey: key, baseURL: url, maxRetries: 0, timeout: 30_000, ...more });
}

const direct = () => client({ url: weir.providerUrl, key: "any" });

function ask(prompt, more = {}) {
  return { model: weir.messagesModel, max_tokens: 2000, messages: [{ role: "user", content: prompt }], ...more };
}

async function streamed(client, request) {
  const stream = client.messages.stream(request);
  let text = "";
  stream.on("text", (piece) => (text += piece));
  const final = await stream.finalMessage();
  return [text, final];
}

async function events(client, request) {
  const found = [];
  for await (const event of await client.messages.create({ ...request, stream: true })) found.push(event);
  return found;
}

const textOf = (message) => message.content.map((block) => (block.type === "text" ? block.text : "")).join("");
const blockOf = (message, type) => message.content.find((block) => block.type === type);

test("text is the same in every way", async () => {
  const expected = textOf(await direct().messages.create(ask(TEXT)));
  const unary = await client().messages.create(ask(TEXT));
  const [text, final] = await streamed(client(), ask(TEXT));
  assert.ok(expected);
  for (const found of [textOf(unary), text, textOf(final)]) assert.equal(found, expected);
  assert.equal(unary.stop_reason, "end_turn");
  assert.equal(final.stop_reason, "end_turn");
  assert.ok(unary._request_id);
});

test("the raw event stream", async () => {
  const kinds = (await events(client(), ask("hello"))).map((event) => event.type);
  assert.deepEqual([kinds.at(0), kinds.at(-1)], ["message_start", "message_stop"]);
  assert.ok(kinds.includes("content_block_delta") && kinds.includes("message_delta"));
});

for (const prompt of USAGES) {
  test(`usage is what the provider sent: ${prompt}`, async () => {
    const sent = (await direct().messages.create(ask(prompt))).usage;
    const [unary, line] = await billedBy(() => client().messages.create(ask(prompt)));
    assert.deepEqual(unary.usage, sent);
    const [[, final]] = await billedBy(() => streamed(client(), ask(prompt)));
    for (const name of ["input_tokens", "output_tokens", "cache_read_input_tokens", "cache_creation_input_tokens"]) {
      assert.equal(final.usage[name], sent[name], name);
    }
    if (prompt.includes("zero")) return;
    assert.equal(unary.usage.input_tokens, line.input_tokens);
    assert.equal(unary.usage.output_tokens, line.output_tokens);
    assert.equal(unary.usage.cache_read_input_tokens ?? 0, line.cache_read_tokens);
    assert.equal(unary.usage.cache_creation_input_tokens ?? 0, line.cache_write_tokens);
  });
}

test("a tool use round trip", async () => {
  const request = ask("What is the weather in Paris?", { tools: [WEATHER] });
  const first = await client().messages.create(request);
  const call = blockOf(first, "tool_use");
  assert.equal(first.stop_reason, "tool_use");
  assert.equal(call.name, "get_weather");
  assert.equal(typeof call.input.city, "string");
  const [, final] = await streamed(client(), request);
  assert.deepEqual(blockOf(final, "tool_use").input, call.input);
  request.messages.push(
    { role: "assistant", content: first.content },
    { role: "user", content: [{ type: "tool_result", tool_use_id: call.id, content: "18 C" }] },
  );
  const answer = await client().messages.create(request);
  assert.match(textOf(answer), /18 C/);
  assert.equal(answer.stop_reason, "end_turn");
});

test("thinking blocks go both ways", async () => {
  const request = ask("Think about rivers.", { thinking: { type: "enabled", budget_tokens: 1024 } });
  const unary = await client().messages.create(request);
  const thought = blockOf(unary, "thinking");
  assert.ok(thought.thinking && thought.signature);
  const [, final] = await streamed(client(), request);
  const again = blockOf(final, "thinking");
  assert.deepEqual([again.thinking, again.signature], [thought.thinking, thought.signature]);
  request.messages.push({ role: "assistant", content: unary.content }, { role: "user", content: "Go on." });
  assert.ok(textOf(await client().messages.create(request)));
});

test("count_tokens", async () => {
  const { max_tokens: _, ...request } = ask("Count these words.");
  const { input_tokens: expected } = await direct().messages.countTokens(request);
  assert.ok(expected > 0);
  assert.equal((await client().messages.countTokens(request)).input_tokens, expected);
});

test("models are listed", async () => {
  const names = [];
  for await (const model of client().models.list({ limit: 1000 })) names.push(model.id);
  assert.ok(names.includes(weir.messagesModel));
  assert.equal((await client().models.retrieve(weir.messagesModel)).id, weir.messagesModel);
});

test("another provider by changing only the model", async () => {
  const request = { ...ask("hello"), model: weir.deepseekModel };
  assert.ok(textOf(await client().messages.create(request)));
  assert.ok((await streamed(client(), request))[0]);
});

test("an auth token is taken too", async () => {
  const made = client({ key: null, authToken: weir.key });
  assert.ok(textOf(await made.messages.create(ask("hello"))));
});

test("a wrong key throws AuthenticationError at once", async () => {
  // Retries stay at the SDK's default: the answer itself has to stop them.
  const wrong = new Anthropic({ apiKey: wrongKey, baseURL: weir.baseUrl });
  await assert.rejects(wrong.messages.create(ask("hello")), (error) => {
    assert.ok(error instanceof Anthropic.AuthenticationError, `${error}`);
    assert.equal(error.headers.get("x-should-retry"), "false");
    assert.ok(error.requestID);
    return true;
  });
  await assert.rejects(streamed(client({ key: "nonsense" }), ask("hello")), Anthropic.AuthenticationError);
});

test("an unknown model throws NotFoundError", async () => {
  const request = { ...ask("hello"), model: "no-such-model" };
  await assert.rejects(client().messages.create(request), (error) => {
    assert.ok(error instanceof Anthropic.NotFoundError, `${error}`);
    assert.match(error.message, /no-such-model/);
    return true;
  });
  await assert.rejects(streamed(client(), request), Anthropic.NotFoundError);
});

for (const status of [400, 429, 500, 529]) {
  test(`a provider's error throws with its status: ${status}`, async () => {
    await assert.rejects(client().messages.create(ask(`[[sample: status=${status}]] hello`)), { status });
  });
}

for (const prompt of [...CUTS, IN_BAND]) {
  test(`a failure in mid stream throws: ${prompt}`, async () => {
    await assert.rejects(streamed(client(), ask(prompt)), Anthropic.APIError);
    await assert.rejects(events(client(), ask(prompt)), Anthropic.APIError);
  });
}

test("a cut inside an event throws", async () => {
  await assert.rejects(streamed(client(), ask(HALF_EVENT)));
});

test("a unary answer that is cut throws", async () => {
  await assert.rejects(client().messages.create(ask(CUT_UNARY)));
});

test("a megabyte passes", async () => {
  assert.ok(textOf(await client().messages.create(ask("water ".repeat(170_000)))));
});
