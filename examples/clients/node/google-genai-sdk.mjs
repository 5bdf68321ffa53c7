// The Google GenAI SDK for Node through weir: a streamed answer and its usage. Needs: npm install @google/genai.

import { GoogleGenAI } from "@google/genai";

const client = new GoogleGenAI({ apiKey: process.env.WEIR_KEY, httpOptions: { baseUrl: process.env.WEIR_URL } });
// The model alone decides which provider answers; nothing else here changes with it.
const model = process.env.WEIR_MODEL ?? "gemini-3.8-flash";

let usage;
for await (const chunk of await client.models.generateContentStream({ model, contents: "Tell me about rivers." })) {
  process.stdout.write(chunk.text ?? "");
  // Every chunk may have it; the last one counts.
  usage = chunk.usageMetadata ?? usage;
}
// The tokens of reasoning stand beside those of the answer here; the other two SDKs count them as output.
const output = usage.candidatesTokenCount + (usage.thoughtsTokenCount ?? 0);
console.log(`\nusage: ${usage.promptTokenCount} input tokens, ${output} output tokens`);
