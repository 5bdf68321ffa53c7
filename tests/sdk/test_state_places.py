"""What the SDKs' types say of state and of maps of the user's own, and what weir makes of it: a map of the user's own names
nothing, whatever stands in it, and state that the account has not made is not found."""

import httpx
import pytest

from state_places import NAMES, NOT_STATE, is_state, items, looks_like_an_identifier, members, sample, says, walks

WALKS = walks()
USER_MAPS = [place for walk in WALKS for place in walk.maps]
STATE = [place for walk in WALKS for place in walk.strings if is_state(place)]


def ask(weir, protocol, members):
    """The answer to a request with these members beside what it has to have."""
    match protocol:
        case "messages":
            path, head = "/v1/messages", {"x-api-key": weir.key}
            base = {"model": weir.messages_model, "max_tokens": 16, "messages": [{"role": "user", "content": "hi"}]}
        case "responses":
            path, head = "/v1/responses", {"authorization": f"Bearer {weir.key}"}
            base = {"model": weir.responses_model, "input": "hi"}
        case "gemini":
            path, head = f"/v1beta/models/{weir.gemini_model}:generateContent", {"x-goog-api-key": weir.key}
            base = {"contents": [{"role": "user", "parts": [{"text": "hi"}]}]}
    return httpx.post(weir.base_url + path, headers=head, json={**base, **members}, timeout=30)


def identifier(place):
    """One that nobody has made."""
    return {"skill_id": "skill_77", "file_uri": "files/77"}.get([name for name in place.path if name != "[]"][-1], "x-77")


def named_as_state(is_free):
    """A map of the user's own whose members have the names of state."""
    texts = {name: "files/77" for name in NAMES}
    if not is_free:
        return texts
    return {**texts, "nested": {**texts, "list": [texts]}, "list": [{name: ["files/77"] for name in NAMES}]}


def test_the_types_have_what_is_looked_for():
    counts = {walk.protocol: (len(walk.maps), sum(map(is_state, walk.strings))) for walk in WALKS}
    assert all(maps >= 10 and state >= 3 for maps, state in counts.values()), counts
    paths = {str(place) for place in (*USER_MAPS, *STATE)}
    for path in (
        "gemini: contents.[].parts.[].part_metadata",
        "gemini: contents.[].parts.[].file_data.file_uri",
        "messages: messages.[].content.[].input",
        "messages: messages.[].content.[].source.file_id",
        "responses: input.[].action.env",
        "responses: input.[].results.[].attributes",
        "responses: metadata",
        "responses: prompt.variables",
        "responses: prompt.variables.{}.file_id",
        "responses: tools.[].headers",
    ):
        assert path in paths


@pytest.mark.parametrize("place", USER_MAPS, ids=str)
def test_a_map_of_the_users_own_names_nothing(weir, place):
    answer = ask(weir, place.protocol, place.body(named_as_state(place.is_free)))
    assert answer.status_code == 200, answer.text


@pytest.mark.parametrize("place", STATE, ids=str)
def test_state_that_nobody_has_made_is_not_found(weir, place):
    answer = ask(weir, place.protocol, place.body(identifier(place)))
    assert answer.status_code == (400 if place.path == ("previous_response_id",) else 404), answer.text
    assert "x-77" in answer.text or "skill_77" in answer.text or "files/77" in answer.text


def test_every_field_that_looks_like_an_identifier_is_known():
    for walk in WALKS:
        for place in walk.strings:
            name = [name for name in place.path if name != "[]"][-1]
            if looks_like_an_identifier(name) and not is_state(place):
                assert name in NOT_STATE, f"{place}: is it state at the provider? src/domain/wire/json_scan/body_position.rs"


@pytest.mark.parametrize("kind", items(), ids=lambda kind: kind.__name__)
def test_an_item_with_content_of_its_own_passes(weir, kind):
    if kind.__name__ == "ItemReference":
        item, status = {"type": "item_reference", "id": "x-77"}, 404
    else:
        item = {**sample(kind), **says(kind)}
        if "id" in members(kind):
            item["id"] = "x-77"
        if item.get("type") == "reasoning":
            item["content"] = [{"type": "reasoning_text", "text": "I think."}]
        if item.get("type") == "configuration_update":
            item["reasoning"] = {"effort": "low"}
        if item.get("role") == "assistant":
            # A citation names a file.
            item["content"][0]["annotations"] = []
        # A call of the interpreter has its container: a later call may go on in it.
        status = 404 if item.get("type") == "code_interpreter_call" else 200
    answer = ask(weir, "responses", {"input": [{"role": "user", "content": "hi"}, item]})
    assert answer.status_code == status, f"{item}: {answer.text}"
