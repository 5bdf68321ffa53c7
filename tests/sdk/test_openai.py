"""The openai SDK's Responses client through the gateway."""

import asyncio
import json

import openai
import pytest

from cases import CACHED, CUTS, HALF_EVENT, IN_BAND
from conftest import wrong_key

WEATHER = {
    "type": "function",
    "name": "get_weather",
    "description": "The weather of a city",
    "strict": False,
    "parameters": {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]},
}


def sync_client(weir, key=None, url=None):
    return openai.OpenAI(api_key=key or weir.key, base_url=(url or weir.base_url) + "/v1", max_retries=0, timeout=30)


def async_client(weir, key=None):
    return openai.AsyncOpenAI(api_key=key or weir.key, base_url=weir.base_url + "/v1", max_retries=0, timeout=30)


def ask(weir, prompt, **more):
    return {"model": weir.responses_model, "input": prompt, **more}


def streamed(client, **request):
    """The text of the deltas and the final response; fails when the stream ends without one."""
    text, final = "", None
    for event in client.responses.create(stream=True, **request):
        if event.type == "response.output_text.delta":
            text += event.delta
        if event.type == "response.completed":
            final = event.response
    return text, final


async def streamed_async(client, **request):
    text, final = "", None
    async for event in await client.responses.create(stream=True, **request):
        if event.type == "response.output_text.delta":
            text += event.delta
        if event.type == "response.completed":
            final = event.response
    return text, final


def test_text_is_the_same_in_every_way(weir):
    request = ask(weir, "Tell me about rivers. [[sample: deltas=30 delta_bytes=11]]")
    direct = sync_client(weir, url=weir.provider_url, key="any").responses.create(**request)
    unary = sync_client(weir).responses.create(**request)
    text, final = streamed(sync_client(weir), **request)
    unary_async = asyncio.run(async_client(weir).responses.create(**request))
    text_async, final_async = asyncio.run(streamed_async(async_client(weir), **request))
    with sync_client(weir).responses.stream(**request) as stream:
        helper = stream.until_done().get_final_response()
    assert direct.output_text
    for found in (unary, final, unary_async, final_async, helper):
        assert found.output_text == direct.output_text and found.status == "completed"
    assert text == text_async == direct.output_text
    assert unary._request_id


@pytest.mark.parametrize("prompt", [CACHED, "Say hello.", "[[sample: usage=zero]] hello"])
def test_usage_is_what_the_provider_sent(weir, prompt):
    direct = sync_client(weir, url=weir.provider_url, key="any").responses.create(**ask(weir, prompt)).usage
    unary, line = weir.billed_by(lambda: sync_client(weir).responses.create(**ask(weir, prompt)))
    (_, final), _ = weir.billed_by(lambda: streamed(sync_client(weir), **ask(weir, prompt)))
    assert unary.usage.to_dict() == final.usage.to_dict() == direct.to_dict()
    if "zero" not in prompt:
        whole_input = line["input_tokens"] + line["cache_read_tokens"] + line["cache_write_tokens"]
        assert unary.usage.input_tokens == whole_input
        assert unary.usage.input_tokens_details.cached_tokens == line["cache_read_tokens"]
        assert unary.usage.output_tokens == line["output_tokens"]


def test_a_tool_use_round_trip(weir):
    client = sync_client(weir)
    request = ask(weir, [{"role": "user", "content": "What is the weather in Paris?"}], tools=[WEATHER])
    first = client.responses.create(**request)
    call = next(item for item in first.output if item.type == "function_call")
    assert call.name == "get_weather" and isinstance(json.loads(call.arguments)["city"], str)
    _, final = streamed(client, **request)
    streamed_call = next(item for item in final.output if item.type == "function_call")
    assert json.loads(streamed_call.arguments) == json.loads(call.arguments)
    request["input"] = [
        *request["input"],
        *(item.to_dict() for item in first.output),
        {"type": "function_call_output", "call_id": call.call_id, "output": "18 C"},
    ]
    answer = asyncio.run(async_client(weir).responses.create(**request))
    assert "18 C" in answer.output_text


def test_reasoning_items_go_both_ways(weir):
    client = sync_client(weir)
    more = {"reasoning": {"effort": "medium", "summary": "auto"}, "include": ["reasoning.encrypted_content"], "store": False}
    unary = client.responses.create(**ask(weir, "Think about rivers.", **more))
    thought = next(item for item in unary.output if item.type == "reasoning")
    _, final = streamed(client, **ask(weir, "Think about rivers.", **more))
    streamed_thought = next(item for item in final.output if item.type == "reasoning")
    assert [part.text for part in streamed_thought.summary] == [part.text for part in thought.summary]
    follow = [{"role": "user", "content": "Think."}, *(item.to_dict() for item in unary.output), {"role": "user", "content": "Go on."}]
    assert client.responses.create(**ask(weir, follow, **more)).output_text


def test_models_are_listed(weir):
    assert weir.responses_model in [model.id for model in sync_client(weir).models.list()]
    assert sync_client(weir).models.retrieve(weir.responses_model).id == weir.responses_model


def test_a_wrong_key_raises_authentication_error_at_once(weir):
    client = openai.OpenAI(api_key=wrong_key(weir.key), base_url=weir.base_url + "/v1")
    with pytest.raises(openai.AuthenticationError) as caught:
        client.responses.create(**ask(weir, "hello"))
    assert caught.value.code == "invalid_api_key"
    assert caught.value.response.headers["x-should-retry"] == "false"
    with pytest.raises(openai.AuthenticationError):
        streamed(sync_client(weir, key="nonsense"), **ask(weir, "hello"))
    with pytest.raises(openai.AuthenticationError):
        asyncio.run(async_client(weir, key="nonsense").responses.create(**ask(weir, "hello")))


def test_an_unknown_model_raises_not_found_error(weir):
    request = {**ask(weir, "hello"), "model": "no-such-model"}
    with pytest.raises(openai.NotFoundError) as caught:
        sync_client(weir).responses.create(**request)
    assert caught.value.code == "model_not_found"
    with pytest.raises(openai.NotFoundError):
        asyncio.run(streamed_async(async_client(weir), **request))


def test_chat_completions_are_gone_and_the_error_says_where_to_go(weir):
    with pytest.raises(openai.NotFoundError) as caught:
        sync_client(weir).chat.completions.create(model=weir.responses_model, messages=[{"role": "user", "content": "hi"}])
    assert "/v1/responses" in str(caught.value)


@pytest.mark.parametrize("status", [400, 429, 500, 503])
def test_a_providers_error_raises_with_its_status(weir, status):
    with pytest.raises(openai.APIStatusError) as caught:
        sync_client(weir).responses.create(**ask(weir, f"[[sample: status={status}]] hello"))
    assert caught.value.status_code == status


@pytest.mark.parametrize("prompt", CUTS)
def test_a_failure_in_mid_stream_raises(weir, prompt):
    with pytest.raises(openai.APIError):
        streamed(sync_client(weir), **ask(weir, prompt))
    with pytest.raises(openai.APIError):
        asyncio.run(streamed_async(async_client(weir), **ask(weir, prompt)))


def test_a_providers_own_in_band_error_reaches_the_caller(weir):
    # The SDK hands it over as an event; the bytes are the provider's, so weir leaves them as they are.
    try:
        kinds = [event.type for event in sync_client(weir).responses.create(stream=True, **ask(weir, IN_BAND))]
    except openai.APIError:
        return
    assert {"response.failed", "error"} & set(kinds) and "response.completed" not in kinds


def test_a_cut_inside_an_event_raises(weir):
    with pytest.raises(Exception):
        streamed(sync_client(weir), **ask(weir, HALF_EVENT))


def test_a_unary_answer_that_is_cut_raises(weir):
    with pytest.raises(Exception):
        sync_client(weir).responses.create(**ask(weir, "[[sample: deltas=200 cut_after=3]] hello"))
