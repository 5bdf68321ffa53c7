"""The anthropic SDK through weir: a streamed answer and its usage. Needs: pip install anthropic."""

import os

import anthropic

client = anthropic.Anthropic(base_url=os.environ["WEIR_URL"], api_key=os.environ["WEIR_KEY"])
# The model determines the provider. Another provider needs no other change in this program.
model = os.environ.get("WEIR_MODEL", "claude-sonnet-5-5")
question = [{"role": "user", "content": "Tell me about rivers."}]

with client.messages.stream(model=model, max_tokens=1000, messages=question) as stream:
    for text in stream.text_stream:
        print(text, end="", flush=True)
    usage = stream.get_final_message().usage
print(f"\nusage: {usage.input_tokens} input tokens, {usage.output_tokens} output tokens")
