"""The anthropic SDK, current (Bearer, version 2026-10-21) and last 0.x (x-api-key, 2023-06-01), through the gateway."""

import asyncio

import anthropic
import pytest

from cases import CACHED, CUTS, HALF_EVENT, IN_BAND
from conftest import wrong_key

WEATHER = {
    "name": "get_weather",
    "description": "The weather of a city",
    "input_schema": {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]},
}


def sync_client(weir, key=None, url=None):
    return anthropic.Anthropic(api_key=key or weir.key, base_url=url or weir.base_url, max_retries=0, timeout=30)


def async_client(weir, key=None):
    return anthropic.AsyncAnthropic(api_key=key or weir.key, base_url=weir.base_url, max_retries=0, timeout=30)


def ask(weir, prompt, **more):
    return {
        "model": weir.messages_model,
        "max_tokens": 2000,
        "messages": [{"role": "user", "content": prompt}],
        **more,
    }


def streamed(client, **request):
    with client.messages.stream(**request) as stream:
        text = "".join(stream.text_stream)
        return text, stream.get_final_message()


async def streamed_async(client, **request):
    async with client.messages.stream(**request) as stream:
        text = "".join([piece async for piece in stream.text_stream])
        return text, await stream.get_final_message()


def text_of(message):
    return "".join(block.text for block in message.content if block.type == "text")


def test_text_is_the_same_in_every_way(weir):
    request = ask(weir, "Tell me about rivers. [[sample: deltas=30 delta_bytes=11]]")
    direct = sync_client(weir, url=weir.provider_url, key="any").messages.create(**request)
    unary = sync_client(weir).messages.create(**request)
    text, final = streamed(sync_client(weir), **request)
    unary_async = asyncio.run(async_client(weir).messages.create(**request))
    text_async, final_async = asyncio.run(streamed_async(async_client(weir), **request))
    assert text_of(direct)
    for found in (text_of(unary), text, text_of(final), text_of(unary_async), text_async, text_of(final_async)):
        assert found == text_of(direct)
    assert unary.stop_reason == final.stop_reason == "end_turn"
    assert unary._request_id


def test_the_raw_event_stream(weir):
    events = [event.type for event in sync_client(weir).messages.create(**ask(weir, "hello"), stream=True)]
    assert events[0] == "message_start" and events[-1] == "message_stop"
    assert "content_block_delta" in events and "message_delta" in events


@pytest.mark.parametrize("prompt", [CACHED, "Say hello.", "[[sample: usage=zero]] hello"])
def test_usage_is_what_the_provider_sent(weir, prompt):
    direct = sync_client(weir, url=weir.provider_url, key="any").messages.create(**ask(weir, prompt)).usage
    unary, line = weir.billed_by(lambda: sync_client(weir).messages.create(**ask(weir, prompt)))
    assert unary.usage.to_dict() == direct.to_dict()
    (_, final), _ = weir.billed_by(lambda: streamed(sync_client(weir), **ask(weir, prompt)))
    for name in ("input_tokens", "output_tokens", "cache_read_input_tokens", "cache_creation_input_tokens"):
        assert getattr(final.usage, name) == getattr(direct, name), name
    if "zero" not in prompt:
        assert unary.usage.input_tokens == line["input_tokens"]
        assert unary.usage.output_tokens == line["output_tokens"]
        assert (unary.usage.cache_read_input_tokens or 0) == line["cache_read_tokens"]
        assert (unary.usage.cache_creation_input_tokens or 0) == line["cache_write_tokens"]


def test_a_tool_use_round_trip(weir):
    client = sync_client(weir)
    request = ask(weir, "What is the weather in Paris?", tools=[WEATHER])
    first = client.messages.create(**request)
    assert first.stop_reason == "tool_use"
    call = next(block for block in first.content if block.type == "tool_use")
    assert call.name == "get_weather" and isinstance(call.input["city"], str)
    _, final = streamed(client, **request)
    streamed_call = next(block for block in final.content if block.type == "tool_use")
    assert streamed_call.input == call.input
    request["messages"] = [
        *request["messages"],
        {"role": "assistant", "content": [block.model_dump(exclude_none=True) for block in first.content]},
        {"role": "user", "content": [{"type": "tool_result", "tool_use_id": call.id, "content": "18 C"}]},
    ]
    answer = asyncio.run(async_client(weir).messages.create(**request))
    assert "18 C" in text_of(answer) and answer.stop_reason == "end_turn"


def test_thinking_blocks_go_both_ways(weir):
    client = sync_client(weir)
    request = ask(weir, "Think about rivers.", thinking={"type": "enabled", "budget_tokens": 1024})
    unary = client.messages.create(**request)
    thought = next(block for block in unary.content if block.type == "thinking")
    assert thought.thinking and thought.signature
    _, final = streamed(client, **request)
    streamed_thought = next(block for block in final.content if block.type == "thinking")
    assert (streamed_thought.thinking, streamed_thought.signature) == (thought.thinking, thought.signature)
    request["messages"] = [
        *request["messages"],
        {"role": "assistant", "content": [block.model_dump(exclude_none=True) for block in unary.content]},
        {"role": "user", "content": "Go on."},
    ]
    assert text_of(client.messages.create(**request))


def test_count_tokens(weir):
    request = ask(weir, "Count these words.")
    del request["max_tokens"]
    direct = sync_client(weir, url=weir.provider_url, key="any").messages.count_tokens(**request)
    assert sync_client(weir).messages.count_tokens(**request).input_tokens == direct.input_tokens > 0


def test_models_are_listed(weir):
    names = [model.id for model in sync_client(weir).models.list(limit=1000)]
    assert weir.messages_model in names
    assert sync_client(weir).models.retrieve(weir.messages_model).id == weir.messages_model


def test_another_provider_by_changing_only_the_model(weir):
    request = {**ask(weir, "hello"), "model": weir.deepseek_model}
    assert text_of(sync_client(weir).messages.create(**request))


def test_an_auth_token_is_taken_too(weir):
    client = anthropic.Anthropic(auth_token=weir.key, base_url=weir.base_url, max_retries=0)
    assert text_of(client.messages.create(**ask(weir, "hello")))


def test_a_wrong_key_raises_authentication_error_at_once(weir):
    # Retries stay at the SDK's default: the answer itself has to stop them.
    client = anthropic.Anthropic(api_key=wrong_key(weir.key), base_url=weir.base_url)
    with pytest.raises(anthropic.AuthenticationError) as caught:
        client.messages.create(**ask(weir, "hello"))
    assert caught.value.response.headers["x-should-retry"] == "false"
    assert caught.value.request_id
    with pytest.raises(anthropic.AuthenticationError):
        streamed(sync_client(weir, key="nonsense"), **ask(weir, "hello"))
    with pytest.raises(anthropic.AuthenticationError):
        asyncio.run(async_client(weir, key="nonsense").messages.create(**ask(weir, "hello")))


def test_an_unknown_model_raises_not_found_error(weir):
    request = {**ask(weir, "hello"), "model": "no-such-model"}
    with pytest.raises(anthropic.NotFoundError) as caught:
        sync_client(weir).messages.create(**request)
    assert "no-such-model" in str(caught.value)
    with pytest.raises(anthropic.NotFoundError):
        asyncio.run(streamed_async(async_client(weir), **request))


@pytest.mark.parametrize("status", [400, 429, 500, 529])
def test_a_providers_error_raises_with_its_status(weir, status):
    with pytest.raises(anthropic.APIStatusError) as caught:
        sync_client(weir).messages.create(**ask(weir, f"[[sample: status={status}]] hello"))
    assert caught.value.status_code == status


@pytest.mark.parametrize("prompt", [*CUTS, IN_BAND])
def test_a_failure_in_mid_stream_raises(weir, prompt):
    with pytest.raises(anthropic.APIError):
        streamed(sync_client(weir), **ask(weir, prompt))
    with pytest.raises(anthropic.APIError):
        list(sync_client(weir).messages.create(**ask(weir, prompt), stream=True))
    with pytest.raises(anthropic.APIError):
        asyncio.run(streamed_async(async_client(weir), **ask(weir, prompt)))


def test_a_cut_inside_an_event_raises(weir):
    with pytest.raises(Exception):
        streamed(sync_client(weir), **ask(weir, HALF_EVENT))


def test_a_unary_answer_that_is_cut_raises(weir):
    with pytest.raises(Exception):
        sync_client(weir).messages.create(**ask(weir, "[[sample: deltas=200 cut_after=3]] hello"))


def test_a_megabyte_passes(weir):
    prompt = "water " * 170_000
    assert text_of(sync_client(weir).messages.create(**ask(weir, prompt)))
