// The OpenAI SDK for Node through weir: a streamed answer and its usage. Needs: npm install openai.

import OpenAI from "openai";

const client = new OpenAI({ baseURL: `${process.env.WEIR_URL}/v1`, apiKey: process.env.WEIR_KEY });
// The model determines the provider. Another provider needs no other change in this program.
const model = process.env.WEIR_MODEL ?? "gpt-5.6-sol";

// weir serves the Responses API, and not the chat completions API.
const stream = client.responses.stream({ model, input: "Tell me about rivers." });
stream.on("response.output_text.delta", (event) => process.stdout.write(event.delta));
const { usage } = await stream.finalResponse();
console.log(`\nusage: ${usage.input_tokens} input tokens, ${usage.output_tokens} output tokens`);
