"""The google-genai SDK through the gateway, under its default version v1 and under v1beta."""

import asyncio

import pytest
from google import genai
from google.genai import errors, types

from cases import CACHED, CUTS, HALF_EVENT, IN_BAND
from conftest import wrong_key

VERSIONS = [None, "v1beta"]
# The SDK closes a client that nobody holds, also under a call that is running.
CLIENTS = []
WEATHER = types.Tool(
    function_declarations=[
        types.FunctionDeclaration(
            name="get_weather",
            description="The weather of a city",
            parameters_json_schema={"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]},
        )
    ]
)


@pytest.fixture(params=VERSIONS, ids=["default", "v1beta"])
def version(request):
    return request.param


def client(weir, version=None, key=None, url=None):
    options = types.HttpOptions(base_url=url or weir.base_url, timeout=30_000)
    if version:
        options.api_version = version
    made = genai.Client(api_key=key or weir.key, vertexai=False, http_options=options)
    CLIENTS.append(made)
    return made


def direct(weir):
    return client(weir, version="v1beta", key="any", url=weir.provider_url)


def ask(weir, prompt, **config):
    request = {"model": weir.gemini_model, "contents": prompt}
    if config:
        request["config"] = types.GenerateContentConfig(**config)
    return request


def streamed(client, **request):
    chunks = list(client.models.generate_content_stream(**request))
    return "".join(chunk.text or "" for chunk in chunks), chunks[-1]


async def unary_async(client, **request):
    return await client.aio.models.generate_content(**request)


async def streamed_async(client, **request):
    chunks = [chunk async for chunk in await client.aio.models.generate_content_stream(**request)]
    return "".join(chunk.text or "" for chunk in chunks), chunks[-1]


def test_text_is_the_same_in_every_way(weir, version):
    request = ask(weir, "Tell me about rivers. [[sample: deltas=30 delta_bytes=11]]")
    expected = direct(weir).models.generate_content(**request).text
    assert expected
    assert client(weir, version).models.generate_content(**request).text == expected
    text, last = streamed(client(weir, version), **request)
    assert text == expected and last.candidates[0].finish_reason == types.FinishReason.STOP
    assert asyncio.run(unary_async(client(weir, version), **request)).text == expected
    assert asyncio.run(streamed_async(client(weir, version), **request))[0] == expected


@pytest.mark.parametrize("prompt", [CACHED, "Say hello.", "[[sample: usage=zero]] hello"])
def test_usage_is_what_the_provider_sent(weir, prompt):
    sent = direct(weir).models.generate_content(**ask(weir, prompt)).usage_metadata
    unary, line = weir.billed_by(lambda: client(weir).models.generate_content(**ask(weir, prompt)))
    (_, last), _ = weir.billed_by(lambda: streamed(client(weir), **ask(weir, prompt)))
    assert unary.usage_metadata == last.usage_metadata == sent
    if "zero" not in prompt:
        assert (unary.usage_metadata.cached_content_token_count or 0) == line["cache_read_tokens"]
        assert unary.usage_metadata.candidates_token_count == line["output_tokens"]


def test_a_tool_use_round_trip(weir, version):
    contents = [types.Content(role="user", parts=[types.Part(text="What is the weather in Paris?")])]
    config = {"tools": [WEATHER]}
    first = client(weir, version).models.generate_content(**ask(weir, contents, **config))
    call = first.function_calls[0]
    assert call.name == "get_weather" and isinstance(call.args["city"], str)
    chunks = list(client(weir, version).models.generate_content_stream(**ask(weir, contents, **config)))
    streamed_calls = [call for chunk in chunks for call in chunk.function_calls or []]
    assert streamed_calls[0].args == call.args
    contents += [
        first.candidates[0].content,
        types.Content(role="user", parts=[types.Part.from_function_response(name=call.name, response={"result": "18 C"})]),
    ]
    answer = asyncio.run(unary_async(client(weir, version), **ask(weir, contents, **config)))
    assert "18 C" in answer.text


def test_thoughts_go_both_ways(weir, version):
    config = {"thinking_config": types.ThinkingConfig(include_thoughts=True, thinking_budget=1024)}

    def thoughts(parts):
        return "".join(part.text or "" for part in parts if part.thought)

    unary = client(weir, version).models.generate_content(**ask(weir, "Think about rivers.", **config))
    thought = thoughts(unary.candidates[0].content.parts)
    assert thought and unary.usage_metadata.thoughts_token_count > 0
    chunks = list(client(weir, version).models.generate_content_stream(**ask(weir, "Think about rivers.", **config)))
    parts = [part for chunk in chunks for part in (chunk.candidates[0].content.parts or [])]
    assert thoughts(parts) == thought
    contents = [
        types.Content(role="user", parts=[types.Part(text="Think about rivers.")]),
        unary.candidates[0].content,
        types.Content(role="user", parts=[types.Part(text="Go on.")]),
    ]
    assert client(weir, version).models.generate_content(**ask(weir, contents, **config)).text


def test_count_tokens(weir, version):
    request = ask(weir, "Count these words.")
    expected = direct(weir).models.count_tokens(**request).total_tokens
    assert client(weir, version).models.count_tokens(**request).total_tokens == expected > 0


def test_models_are_listed(weir, version):
    names = [model.name for model in client(weir, version).models.list()]
    assert f"models/{weir.gemini_model}" in names
    assert client(weir, version).models.get(model=weir.gemini_model).name == f"models/{weir.gemini_model}"


def test_a_wrong_key_raises_client_error_401(weir, version):
    for key in (wrong_key(weir.key), "nonsense"):
        with pytest.raises(errors.ClientError) as caught:
            client(weir, version, key=key).models.generate_content(**ask(weir, "hello"))
        assert caught.value.code == 401 and caught.value.status == "UNAUTHENTICATED"
        with pytest.raises(errors.ClientError) as caught:
            streamed(client(weir, version, key=key), **ask(weir, "hello"))
        assert caught.value.code == 401
        with pytest.raises(errors.ClientError) as caught:
            asyncio.run(streamed_async(client(weir, version, key=key), **ask(weir, "hello")))
        assert caught.value.code == 401


def test_an_unknown_model_raises_client_error_404(weir, version):
    request = {"model": "no-such-model", "contents": "hello"}
    with pytest.raises(errors.ClientError) as caught:
        client(weir, version).models.generate_content(**request)
    assert caught.value.code == 404 and caught.value.status == "NOT_FOUND"
    with pytest.raises(errors.ClientError) as caught:
        asyncio.run(streamed_async(client(weir, version), **request))
    assert caught.value.code == 404


@pytest.mark.parametrize("status", [400, 429, 500, 503])
def test_a_providers_error_raises_with_its_status(weir, status):
    with pytest.raises(errors.APIError) as caught:
        client(weir).models.generate_content(**ask(weir, f"[[sample: status={status}]] hello"))
    assert caught.value.code == status


@pytest.mark.parametrize("prompt", [*CUTS, IN_BAND])
def test_a_failure_in_mid_stream_raises(weir, version, prompt):
    with pytest.raises(errors.APIError):
        streamed(client(weir, version), **ask(weir, prompt))
    with pytest.raises(errors.APIError):
        asyncio.run(streamed_async(client(weir, version), **ask(weir, prompt)))


def test_a_cut_inside_an_event_raises(weir):
    with pytest.raises(Exception):
        streamed(client(weir), **ask(weir, HALF_EVENT))


def test_a_unary_answer_that_is_cut_raises(weir):
    with pytest.raises(Exception):
        client(weir).models.generate_content(**ask(weir, "[[sample: deltas=200 cut_after=3]] hello"))
