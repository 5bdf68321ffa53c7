// The openai SDK's WebSocket client for Responses for Node through the gateway (tests/integration/sockets/sdk.rs starts it).

import assert from "node:assert/strict";
import { test } from "node:test";

import OpenAI from "openai";
import { ResponsesWS } from "openai/resources/responses/ws";

import { TEXT } from "./cases.js";
import { billedBy, weir, wrongKey } from "./weir.js";

const ENDS = ["response.completed", "response.failed", "response.incomplete", "error"];

function client({ key = weir.key, url = weir.baseUrl } = {}) {
  return new OpenAI({ apiKey: key, baseURL: `${url}/v1`, maxRetries: 0, timeout: 30_000 });
}

// Opens a socket, calls `use` with it and a function that returns its next event, and closes it. Errors of the API are events.
async function withSocket(use, { options, ...more } = {}) {
  const socket = new ResponsesWS(client(more), options);
  const records = socket.stream();
  const next = async () => {
    for (;;) {
      const { value, done } = await records.next();
      assert.ok(!done, "the socket has ended");
      if (value.type === "message") return value.message;
      if (value.type === "error" && value.error.error) return value.error.error;
      assert.notEqual(value.type, "error", `${value.error}`);
      assert.notEqual(value.type, "close", `${value.code} ${value.reason}`);
    }
  };
  try {
    return await use(socket, next);
  } finally {
    socket.close();
  }
}

function create(socket, input, more = {}) {
  socket.send({ type: "response.create", model: weir.responsesModel, store: false, input, ...more });
}

// The text of the deltas, and the event that ends the response.
async function turn(next) {
  let text = "";
  for (;;) {
    const event = await next();
    if (event.type === "response.output_text.delta") text += event.delta;
    if (ENDS.includes(event.type)) return [text, event];
  }
}

// The events of each lane until so many responses have ended.
async function lanes(next, ends) {
  const events = new Map();
  while (ends > 0) {
    const event = await next();
    const lane = event.stream_id ?? "";
    events.set(lane, [...(events.get(lane) ?? []), event]);
    if (ENDS.includes(event.type)) ends -= 1;
  }
  return events;
}

const textOf = (events) =>
  events
    .filter((event) => event.type === "response.output_text.delta")
    .map((event) => event.delta)
    .join("");

test("text and usage are those of a POST", async () => {
  const post = await client().responses.create({ model: weir.responsesModel, store: false, input: TEXT });
  const [[text, end], line] = await billedBy(() =>
    withSocket(async (socket, next) => {
      create(socket, TEXT);
      return turn(next);
    }),
  );
  assert.equal(end.type, "response.completed");
  assert.equal(text, post.output_text);
  assert.deepEqual(end.response.usage, post.usage);
  assert.equal(end.response.usage.output_tokens, line.output_tokens);
});

test("a conversation is continued with what is new", async () => {
  await withSocket(async (socket, next) => {
    const inputs = [];
    let id;
    for (let number = 0; number < 5; number += 1) {
      create(socket, `Question ${number} about rivers.`, id ? { previous_response_id: id } : {});
      const [text, end] = await turn(next);
      assert.match(text, new RegExp(`Question ${number}`));
      id = end.response.id;
      inputs.push(end.response.usage.input_tokens);
    }
    assert.deepEqual(inputs, [...new Set(inputs)].sort((a, b) => a - b));
  });
});

test("lanes are answered at one time, and a response is forked", async () => {
  await withSocket(async (socket, next) => {
    create(socket, "The root.");
    const [, root] = await turn(next);
    for (const lane of ["left", "right"]) {
      const more = { stream_id: lane, previous_response_id: root.response.id };
      create(socket, `To the ${lane}. [[sample: deltas=20 gap_ms=20]]`, more);
    }
    const events = await lanes(next, 2);
    assert.deepEqual([...events.keys()].sort(), ["left", "right"]);
    for (const [lane, own] of events) {
      assert.equal(own.at(-1).type, "response.completed");
      assert.match(textOf(own), new RegExp(`To the ${lane}`));
      assert.ok(own.at(-1).response.usage.input_tokens > root.response.usage.input_tokens);
    }
  });
});

test("an unknown response is an error with its code, and the socket stays", async () => {
  await withSocket(async (socket, next) => {
    create(socket, "more", { previous_response_id: "resp_of_nobody" });
    const [, error] = await turn(next);
    assert.equal(error.type, "error");
    assert.equal(error.status, 400);
    assert.equal(error.error.code, "previous_response_not_found");
    create(socket, "hello");
    const [, end] = await turn(next);
    assert.equal(end.type, "response.completed");
  });
});

test("a wrong key opens no socket", async () => {
  const socket = new ResponsesWS(client({ key: wrongKey }));
  const error = await new Promise((resolve) => socket.on("error", resolve));
  assert.match(error.message, /401/);
});

test("a large event arrives", async () => {
  await withSocket(async (socket, next) => {
    create(socket, "Tell me. [[sample: deltas=2 delta_bytes=1048576 usage=zero]]");
    const [text, end] = await turn(next);
    assert.equal(end.type, "response.completed");
    assert.equal(text.length, 2 << 20);
  });
});

test("the client connects again when its socket has reached its age", async () => {
  const codes = [];
  const reconnect = {
    initialDelay: 50,
    onReconnecting: ({ closeCode }) => {
      codes.push(closeCode);
    },
  };
  const place = { key: process.env.WEIR_SHORT_LIVED_KEY, url: process.env.WEIR_SHORT_LIVED_URL };
  await withSocket(
    async (socket, next) => {
      create(socket, "before it");
      const [before, end] = await turn(next);
      assert.equal(end.type, "response.completed");
      assert.match(before, /before it/);
      await new Promise((resolve) => socket.on("reconnected", resolve));
      create(socket, "after it");
      const [after, last] = await turn(next);
      assert.equal(last.type, "response.completed");
      assert.match(after, /after it/);
    },
    { ...place, options: { reconnect } },
  );
  assert.deepEqual(codes, [1001]);
});
