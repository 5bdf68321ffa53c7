"""The openai SDK through weir: a streamed answer and its usage. Needs: pip install openai."""

import os

import openai

client = openai.OpenAI(base_url=os.environ["WEIR_URL"] + "/v1", api_key=os.environ["WEIR_KEY"])
# The model determines the provider. Another provider needs no other change in this program.
model = os.environ.get("WEIR_MODEL", "gpt-5.6-sol")

# weir serves the Responses API, and not the chat completions API.
with client.responses.stream(model=model, input="Tell me about rivers.") as stream:
    for event in stream:
        if event.type == "response.output_text.delta":
            print(event.delta, end="", flush=True)
    usage = stream.get_final_response().usage
print(f"\nusage: {usage.input_tokens} input tokens, {usage.output_tokens} output tokens")
