// The Anthropic SDK for Node through weir: a streamed answer and its usage. Needs: npm install @anthropic-ai/sdk.

import Anthropic from "@anthropic-ai/sdk";

const client = new Anthropic({ baseURL: process.env.WEIR_URL, apiKey: process.env.WEIR_KEY });
// The model determines the provider. Another provider needs no other change in this program.
const model = process.env.WEIR_MODEL ?? "claude-sonnet-5-5";
const messages = [{ role: "user", content: "Tell me about rivers." }];

const stream = client.messages.stream({ model, max_tokens: 1000, messages });
stream.on("text", (text) => process.stdout.write(text));
const { usage } = await stream.finalMessage();
console.log(`\nusage: ${usage.input_tokens} input tokens, ${usage.output_tokens} output tokens`);
