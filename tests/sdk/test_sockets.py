"""The openai SDK's WebSocket client for Responses through the gateway (tests/integration/sockets/sdk.rs starts it)."""

import asyncio
import os

import openai
import pytest
from websockets.exceptions import InvalidStatus

from conftest import wrong_key

TEXT = "Tell me about rivers. [[sample: deltas=30 delta_bytes=11]]"
# Longer than the pings and their timeout together.
LONG = "Tell me. [[sample: deltas=15 gap_ms=100]]"
ENDS = ("response.completed", "response.failed", "response.incomplete", "error")


def client(weir, key=None, url=None):
    return openai.OpenAI(api_key=key or weir.key, base_url=(url or weir.base_url) + "/v1", max_retries=0, timeout=30)


def async_client(weir):
    return openai.AsyncOpenAI(api_key=weir.key, base_url=weir.base_url + "/v1", max_retries=0, timeout=30)


def create(connection, weir, prompt, **more):
    connection.response.create(model=weir.responses_model, input=prompt, store=False, **more)


def lane_of(event):
    return event.to_dict().get("stream_id")


def turn(connection):
    """The text of the deltas, and the event that ends the response."""
    text = ""
    for event in connection:
        if event.type == "response.output_text.delta":
            text += event.delta
        if event.type in ENDS:
            return text, event
    raise AssertionError("the socket ended within a response")


def lanes(connection, ends):
    """The events of each lane until so many responses have ended, and the lanes in the order of their events."""
    events, order = {}, []
    while ends:
        event = connection.recv()
        events.setdefault(lane_of(event), []).append(event)
        order.append(lane_of(event))
        ends -= event.type in ENDS
    return events, order


def text_of(events):
    return "".join(event.delta for event in events if event.type == "response.output_text.delta")


def test_text_and_usage_are_those_of_a_post(weir):
    post = client(weir).responses.create(model=weir.responses_model, input=TEXT, store=False)

    def by_socket():
        with client(weir).responses.connect() as connection:
            create(connection, weir, TEXT)
            return turn(connection)

    (text, end), line = weir.billed_by(by_socket)
    assert end.type == "response.completed"
    assert text == end.response.output_text == post.output_text
    assert end.response.usage.to_dict() == post.usage.to_dict()
    assert end.response.usage.output_tokens == line["output_tokens"]


def test_a_conversation_is_continued_with_what_is_new(weir):
    with client(weir).responses.connect() as connection:
        id, inputs = None, []
        for number in range(5):
            more = {"previous_response_id": id} if id else {}
            create(connection, weir, f"Question {number} about rivers.", **more)
            text, end = turn(connection)
            assert f"Question {number}" in text, text
            id = end.response.id
            inputs.append(end.response.usage.input_tokens)
    assert inputs == sorted(set(inputs)), inputs


def test_a_conversation_is_warmed_up(weir):
    with client(weir).responses.connect() as connection:
        create(connection, weir, [{"role": "developer", "content": "Be brief."}], generate=False)
        _, warm = turn(connection)
        assert warm.type == "response.completed" and warm.response.output == []
        create(connection, weir, "hello", previous_response_id=warm.response.id)
        text, end = turn(connection)
        assert end.type == "response.completed" and "hello" in text


def test_lanes_are_answered_at_one_time(weir):
    with client(weir).responses.connect() as connection:
        for lane in ("one", "two", "three"):
            create(connection, weir, f"Tell {lane}. [[sample: deltas=20 gap_ms=20]]", stream_id=lane)
        create(connection, weir, "Tell nobody. [[sample: deltas=20 gap_ms=20]]")
        events, order = lanes(connection, 4)
    assert set(events) == {"one", "two", "three", None}
    for lane, own in events.items():
        assert own[-1].type == "response.completed"
        assert f"Tell {lane or 'nobody'}." in text_of(own)
    first_end = min(index for index, lane in enumerate(order) if lane not in order[index + 1 :])
    assert set(order[:first_end]) == set(events), "each has begun before any has ended"


def test_a_response_is_forked(weir):
    with client(weir).responses.connect() as connection:
        create(connection, weir, "The root.")
        _, root = turn(connection)
        for lane in ("left", "right"):
            create(connection, weir, f"To the {lane}.", stream_id=lane, previous_response_id=root.response.id)
        events, _ = lanes(connection, 2)
        for lane, own in events.items():
            assert f"To the {lane}." in text_of(own)
            more = {"stream_id": lane, "previous_response_id": own[-1].response.id}
            create(connection, weir, "And on.", **more)
        events, _ = lanes(connection, 2)
        inputs = [own[-1].response.usage.input_tokens for own in events.values()]
        assert min(inputs) > root.response.usage.input_tokens, inputs


def test_an_unknown_response_is_an_error_with_its_code_and_the_socket_stays(weir):
    with client(weir).responses.connect() as connection:
        create(connection, weir, "more", previous_response_id="resp_of_nobody", stream_id="lane")
        event = connection.recv()
        told = event.to_dict()
        assert told["type"] == "error" and told["status"] == 400 and told["stream_id"] == "lane"
        assert told["error"]["code"] == "previous_response_not_found"
        create(connection, weir, "hello")
        assert turn(connection)[1].type == "response.completed"


def test_a_wrong_key_opens_no_socket(weir):
    with pytest.raises(InvalidStatus) as caught:
        client(weir, key=wrong_key(weir.key)).responses.connect().enter()
    assert caught.value.response.status_code == 401


def test_pings_of_the_client_are_answered_while_answers_run_and_others_wait(weir):
    # Without a pong in this time, the client ends the connection (1011).
    options = {"ping_interval": 0.2, "ping_timeout": 1.5}
    with client(weir).responses.connect(websocket_connection_options=options) as connection:
        for lane in range(10):
            create(connection, weir, LONG, stream_id=f"lane-{lane}")
        events, _ = lanes(connection, 10)
    assert all(own[-1].type == "response.completed" for own in events.values())


def test_a_large_event_arrives(weir):
    with client(weir).responses.connect() as connection:
        create(connection, weir, "Tell me. [[sample: deltas=2 delta_bytes=1048576 usage=zero]]")
        text, end = turn(connection)
    assert len(text) == 2 << 20 and end.response.output_text == text


def test_the_asynchronous_client_speaks_it_too(weir):
    async def ask():
        async with async_client(weir).responses.connect() as connection:
            text = ""
            await connection.response.create(model=weir.responses_model, input=TEXT, store=False)
            async for event in connection:
                if event.type == "response.output_text.delta":
                    text += event.delta
                if event.type in ENDS:
                    return text, event
        raise AssertionError("the socket ended within a response")

    text, end = asyncio.run(ask())
    assert end.type == "response.completed" and text == end.response.output_text


def test_the_client_connects_again_when_its_socket_has_reached_its_age(weir):
    """At a gateway whose sockets live for some seconds: what is queued while the client connects again is sent then."""
    url, key = os.environ["WEIR_SHORT_LIVED_URL"], os.environ["WEIR_SHORT_LIVED_KEY"]
    codes = []

    def on_reconnecting(event):
        if not codes:
            create(connection, weir, "after it")
        codes.append(event.close_code)

    connect = client(weir, key=key, url=url).responses.connect
    with connect(on_reconnecting=on_reconnecting, initial_delay=0.05) as connection:
        create(connection, weir, "before it")
        text, end = turn(connection)
        assert end.type == "response.completed" and "before it" in text
        text, end = turn(connection)
        assert end.type == "response.completed" and "after it" in text
    assert codes == [1001]
