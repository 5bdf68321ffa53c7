// The Google GenAI SDK for Node through the gateway, under its default API version and under v1beta.

import assert from "node:assert/strict";
import { test } from "node:test";

import { ApiError, GoogleGenAI } from "@google/genai";

import { CUTS, CUT_UNARY, HALF_EVENT, IN_BAND, TEXT, USAGES } from "./cases.js";
import { billedBy, weir, wrongKey } from "./weir.js";

const VERSIONS = [undefined, "v1beta"];
const SCHEMA = { type: "object", properties: { city: { type: "string" } }, required: ["city"] };
const WEATHER = {
  functionDeclarations: [{ name: "get_weather", description: "The weather of a city", parametersJsonSchema: SCHEMA }],
};

function client({ apiVersion, key = weir.key, url = weir.baseUrl } = {}) {
  const httpOptions = { baseUrl: url, timeout: 30_000, ...(apiVersion && { apiVersion }) };
  return new GoogleGenAI({ apiKey: key, vertexai: false, httpOptions });
}

const direct = () => client({ apiVersion: "v1beta", url: weir.providerUrl, key: "any" });

function ask(contents, config) {
  return { model: weir.geminiModel, contents, ...(config && { config }) };
}

const unary = (client, request) => client.models.generateContent(request);

async function chunks(client, request) {
  const found = [];
  for await (const chunk of await client.models.generateContentStream(request)) found.push(chunk);
  return found;
}

async function streamed(client, request) {
  const found = await chunks(client, request);
  return [found.map((chunk) => chunk.text ?? "").join(""), found.at(-1)];
}

const user = (text) => ({ role: "user", parts: [{ text }] });
const thoughtsOf = (parts) => parts.map((part) => (part.thought ? part.text : "")).join("");
const apiError = (status) => (error) => {
  assert.ok(error instanceof ApiError, `${error}`);
  assert.equal(error.status, status);
  return true;
};

for (const apiVersion of VERSIONS) {
  const version = apiVersion ?? "default";

  test(`text is the same in every way (${version})`, async () => {
    const expected = (await unary(direct(), ask(TEXT))).text;
    assert.ok(expected);
    assert.equal((await unary(client({ apiVersion }), ask(TEXT))).text, expected);
    const [text, last] = await streamed(client({ apiVersion }), ask(TEXT));
    assert.equal(text, expected);
    assert.equal(last.candidates[0].finishReason, "STOP");
  });

  test(`a tool use round trip (${version})`, async () => {
    const made = client({ apiVersion });
    const contents = [user("What is the weather in Paris?")];
    const first = await unary(made, ask(contents, { tools: [WEATHER] }));
    const call = first.functionCalls[0];
    assert.equal(call.name, "get_weather");
    assert.equal(typeof call.args.city, "string");
    const found = await chunks(made, ask(contents, { tools: [WEATHER] }));
    assert.deepEqual(found.flatMap((chunk) => chunk.functionCalls ?? [])[0].args, call.args);
    const functionResponse = { id: call.id, name: call.name, response: { result: "18 C" } };
    contents.push(first.candidates[0].content, { role: "user", parts: [{ functionResponse }] });
    assert.match((await unary(made, ask(contents, { tools: [WEATHER] }))).text, /18 C/);
  });

  test(`thoughts go both ways (${version})`, async () => {
    const made = client({ apiVersion });
    const config = { thinkingConfig: { includeThoughts: true, thinkingBudget: 1024 } };
    const first = await unary(made, ask("Think about rivers.", config));
    const thought = thoughtsOf(first.candidates[0].content.parts);
    assert.ok(thought && first.usageMetadata.thoughtsTokenCount > 0);
    const found = await chunks(made, ask("Think about rivers.", config));
    assert.equal(thoughtsOf(found.flatMap((chunk) => chunk.candidates[0].content.parts ?? [])), thought);
    const contents = [user("Think about rivers."), first.candidates[0].content, user("Go on.")];
    assert.ok((await unary(made, ask(contents, config))).text);
  });

  test(`countTokens (${version})`, async () => {
    const expected = (await direct().models.countTokens(ask("Count these words."))).totalTokens;
    assert.ok(expected > 0);
    assert.equal((await client({ apiVersion }).models.countTokens(ask("Count these words."))).totalTokens, expected);
  });

  test(`models are listed (${version})`, async () => {
    const made = client({ apiVersion });
    const names = [];
    for await (const model of await made.models.list()) names.push(model.name);
    assert.ok(names.includes(`models/${weir.geminiModel}`));
    assert.equal((await made.models.get({ model: weir.geminiModel })).name, `models/${weir.geminiModel}`);
  });

  test(`a wrong key throws ApiError 401 (${version})`, async () => {
    for (const key of [wrongKey, "nonsense"]) {
      await assert.rejects(unary(client({ apiVersion, key }), ask("hello")), apiError(401));
      await assert.rejects(streamed(client({ apiVersion, key }), ask("hello")), apiError(401));
    }
  });

  test(`an unknown model throws ApiError 404 (${version})`, async () => {
    const request = { ...ask("hello"), model: "no-such-model" };
    await assert.rejects(unary(client({ apiVersion }), request), apiError(404));
    await assert.rejects(streamed(client({ apiVersion }), request), apiError(404));
  });

  for (const prompt of [...CUTS, IN_BAND]) {
    test(`a failure in mid stream throws (${version}): ${prompt}`, async () => {
      await assert.rejects(streamed(client({ apiVersion }), ask(prompt)), ApiError);
    });
  }
}

for (const prompt of USAGES) {
  test(`usage is what the provider sent: ${prompt}`, async () => {
    const sent = (await unary(direct(), ask(prompt))).usageMetadata;
    const [answer, line] = await billedBy(() => unary(client(), ask(prompt)));
    const [[, last]] = await billedBy(() => streamed(client(), ask(prompt)));
    assert.deepEqual(answer.usageMetadata, sent);
    assert.deepEqual(last.usageMetadata, sent);
    if (prompt.includes("zero")) return;
    assert.equal(answer.usageMetadata.cachedContentTokenCount ?? 0, line.cache_read_tokens);
    assert.equal(answer.usageMetadata.candidatesTokenCount, line.output_tokens);
  });
}

for (const status of [400, 429, 500, 503]) {
  test(`a provider's error throws with its status: ${status}`, async () => {
    await assert.rejects(unary(client(), ask(`[[sample: status=${status}]] hello`)), apiError(status));
  });
}

test("a cut inside an event throws", async () => {
  await assert.rejects(streamed(client(), ask(HALF_EVENT)));
});

test("a unary answer that is cut throws", async () => {
  await assert.rejects(unary(client(), ask(CUT_UNARY)));
});
