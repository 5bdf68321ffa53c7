// The openai SDK's Responses client for Node through the gateway.

import assert from "node:assert/strict";
import { test } from "node:test";

import OpenAI from "openai";

import { CUTS, CUT_UNARY, HALF_EVENT, IN_BAND, TEXT, USAGES } from "./cases.js";
import { billedBy, weir, wrongKey } from "./weir.js";

const WEATHER = {
  type: "function",
  name: "get_weather",
  description: "The weather of a city",
  strict: false,
  parameters: { type: "object", properties: { city: { type: "string" } }, required: ["city"] },
};

function client({ key = weir.key, url = weir.baseUrl } = {}) {
  return new OpenAI({ apiKey: key, baseURL: `${url}/v1`, maxRetries: 0, timeout: 30_000 });
}

const direct = () => client({ url: weir.providerUrl, key: "any" });

function ask(prompt, more = {}) {
  return { model: weir.responsesModel, input: prompt, ...more };
}

// The text of the deltas and the final response; undefined when the stream ends without one.
async function streamed(client, request) {
  let text = "";
  let final;
  for await (const event of await client.responses.create({ ...request, stream: true })) {
    if (event.type === "response.output_text.delta") text += event.delta;
    if (event.type === "response.completed") final = event.response;
  }
  return [text, final];
}

// The helper's own way to the final response.
const helped = (client, request) => client.responses.stream(request).finalResponse();

const textOf = (response) =>
  response.output
    .filter((item) => item.type === "message")
    .flatMap((item) => item.content.map((part) => part.text))
    .join("");
const itemOf = (response, type) => response.output.find((item) => item.type === type);

test("text is the same in every way", async () => {
  const expected = (await direct().responses.create(ask(TEXT))).output_text;
  const unary = await client().responses.create(ask(TEXT));
  const [text, final] = await streamed(client(), ask(TEXT));
  const helper = await helped(client(), ask(TEXT));
  assert.ok(expected);
  for (const found of [unary.output_text, text, textOf(final), textOf(helper)]) assert.equal(found, expected);
  for (const found of [unary, final, helper]) assert.equal(found.status, "completed");
  assert.ok(unary._request_id);
});

for (const prompt of USAGES) {
  test(`usage is what the provider sent: ${prompt}`, async () => {
    const sent = (await direct().responses.create(ask(prompt))).usage;
    const [unary, line] = await billedBy(() => client().responses.create(ask(prompt)));
    const [[, final]] = await billedBy(() => streamed(client(), ask(prompt)));
    assert.deepEqual(unary.usage, sent);
    assert.deepEqual(final.usage, sent);
    if (prompt.includes("zero")) return;
    const wholeInput = line.input_tokens + line.cache_read_tokens + line.cache_write_tokens;
    assert.equal(unary.usage.input_tokens, wholeInput);
    assert.equal(unary.usage.input_tokens_details.cached_tokens, line.cache_read_tokens);
    assert.equal(unary.usage.output_tokens, line.output_tokens);
  });
}

test("a tool use round trip", async () => {
  const request = ask([{ role: "user", content: "What is the weather in Paris?" }], { tools: [WEATHER] });
  const first = await client().responses.create(request);
  const call = itemOf(first, "function_call");
  assert.equal(call.name, "get_weather");
  assert.equal(typeof JSON.parse(call.arguments).city, "string");
  const [, final] = await streamed(client(), request);
  assert.deepEqual(JSON.parse(itemOf(final, "function_call").arguments), JSON.parse(call.arguments));
  request.input.push(...first.output, { type: "function_call_output", call_id: call.call_id, output: "18 C" });
  assert.match((await client().responses.create(request)).output_text, /18 C/);
});

test("reasoning items go both ways", async () => {
  const more = {
    reasoning: { effort: "medium", summary: "auto" },
    include: ["reasoning.encrypted_content"],
    store: false,
  };
  const unary = await client().responses.create(ask("Think about rivers.", more));
  const thought = itemOf(unary, "reasoning");
  assert.ok(thought.encrypted_content);
  const [, final] = await streamed(client(), ask("Think about rivers.", more));
  assert.deepEqual(itemOf(final, "reasoning").summary, thought.summary);
  const follow = [{ role: "user", content: "Think." }, ...unary.output, { role: "user", content: "Go on." }];
  assert.ok((await client().responses.create(ask(follow, more))).output_text);
});

test("models are listed", async () => {
  const names = [];
  for await (const model of client().models.list()) names.push(model.id);
  assert.ok(names.includes(weir.responsesModel));
  assert.equal((await client().models.retrieve(weir.responsesModel)).id, weir.responsesModel);
});

test("a wrong key throws AuthenticationError at once", async () => {
  // Retries stay at the SDK's default: the answer itself has to stop them.
  const wrong = new OpenAI({ apiKey: wrongKey, baseURL: `${weir.baseUrl}/v1` });
  await assert.rejects(wrong.responses.create(ask("hello")), (error) => {
    assert.ok(error instanceof OpenAI.AuthenticationError, `${error}`);
    assert.equal(error.code, "invalid_api_key");
    assert.equal(error.headers.get("x-should-retry"), "false");
    return true;
  });
  await assert.rejects(streamed(client({ key: "nonsense" }), ask("hello")), OpenAI.AuthenticationError);
});

test("an unknown model throws NotFoundError", async () => {
  const request = { ...ask("hello"), model: "no-such-model" };
  await assert.rejects(client().responses.create(request), (error) => {
    assert.ok(error instanceof OpenAI.NotFoundError, `${error}`);
    assert.equal(error.code, "model_not_found");
    return true;
  });
  await assert.rejects(streamed(client(), request), OpenAI.NotFoundError);
});

test("chat completions are gone and the error says where to go", async () => {
  const request = { model: weir.responsesModel, messages: [{ role: "user", content: "hi" }] };
  await assert.rejects(client().chat.completions.create(request), (error) => {
    assert.ok(error instanceof OpenAI.NotFoundError, `${error}`);
    assert.match(error.message, /\/v1\/responses/);
    return true;
  });
});

for (const status of [400, 429, 500, 503]) {
  test(`a provider's error throws with its status: ${status}`, async () => {
    await assert.rejects(client().responses.create(ask(`[[sample: status=${status}]] hello`)), { status });
  });
}

for (const prompt of CUTS) {
  test(`a failure in mid stream throws: ${prompt}`, async () => {
    await assert.rejects(streamed(client(), ask(prompt)), OpenAI.APIError);
    await assert.rejects(helped(client(), ask(prompt)), OpenAI.OpenAIError);
  });
}

test("a provider's own in-band error is no success", async () => {
  // The SDK hands response.failed over as an event; the bytes are the provider's, so weir leaves them as they are.
  const [, final] = await streamed(client(), ask(IN_BAND));
  assert.equal(final, undefined);
});

test("a cut inside an event throws", async () => {
  await assert.rejects(streamed(client(), ask(HALF_EVENT)));
});

test("a unary answer that is cut throws", async () => {
  await assert.rejects(client().responses.create(ask(CUT_UNARY)));
});
