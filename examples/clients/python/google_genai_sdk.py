"""The google-genai SDK through weir: a streamed answer and its usage. Needs: pip install google-genai."""

import os

from google import genai

client = genai.Client(api_key=os.environ["WEIR_KEY"], http_options={"base_url": os.environ["WEIR_URL"]})
# The model alone decides which provider answers; nothing else here changes with it.
model = os.environ.get("WEIR_MODEL", "gemini-3.8-flash")

usage = None
for chunk in client.models.generate_content_stream(model=model, contents="Tell me about rivers."):
    print(chunk.text or "", end="", flush=True)
    # Every chunk may have it; the last one counts.
    usage = chunk.usage_metadata or usage
# The tokens of reasoning stand beside those of the answer here; the other two SDKs count them as output.
output = usage.candidates_token_count + (usage.thoughts_token_count or 0)
print(f"\nusage: {usage.prompt_token_count} input tokens, {output} output tokens")
