// The Google GenAI SDK for Node through weir: a streamed answer and its usage. Needs: npm install @google/genai.

import { GoogleGenAI } from "@google/genai";

const client = new GoogleGenAI({ apiKey: process.env.WEIR_KEY, httpOptions: { baseUrl: process.env.WEIR_URL } });
// The model determines the provider. Another provider needs no other change in this program.
const model = process.env.WEIR_MODEL ?? "gemini-3.8-flash";

let usage;
for await (const chunk of await client.models.generateContentStream({ model, contents: "Tell me about rivers." })) {
  process.stdout.write(chunk.text ?? "");
  // Several chunks can contain the usage. The last one is final.
  usage = chunk.usageMetadata ?? usage;
}
// This protocol counts reasoning tokens separately. The other two protocols include them in the output tokens.
const output = usage.candidatesTokenCount + (usage.thoughtsTokenCount ?? 0);
console.log(`\nusage: ${usage.promptTokenCount} input tokens, ${output} output tokens`);
