"""The google-genai SDK through weir: a streamed answer and its usage. Needs: pip install google-genai."""

import os

from google import genai

client = genai.Client(api_key=os.environ["WEIR_KEY"], http_options={"base_url": os.environ["WEIR_URL"]})
# The model determines the provider. Another provider needs no other change in this program.
model = os.environ.get("WEIR_MODEL", "gemini-3.8-flash")

usage = None
for chunk in client.models.generate_content_stream(model=model, contents="Tell me about rivers."):
    print(chunk.text or "", end="", flush=True)
    # Several chunks can contain the usage. The last one is final.
    usage = chunk.usage_metadata or usage
# This protocol counts reasoning tokens separately. The other two protocols include them in the output tokens.
output = usage.candidates_token_count + (usage.thoughts_token_count or 0)
print(f"\nusage: {usage.prompt_token_count} input tokens, {output} output tokens")
