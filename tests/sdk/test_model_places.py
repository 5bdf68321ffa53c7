"""Where the SDKs' own types name a model beside the one that is to answer: a key that may not use all of them names no other
there, and a map of the user's own names none, whatever stands in it."""

import pytest

from state_places import HAS_RUN, NOT_MODELS, holder, names_a_further_model, walks
from test_state_places import USER_MAPS, ask

WALKS = walks()
MODELS = [place for walk in WALKS for place in walk.models]
FURTHER = [place for place in MODELS if names_a_further_model(place)]
HAVE_RUN = [place for place in MODELS if holder(place) in HAS_RUN]

OTHER = "other-model-77"


def own(weir, place):
    """The name of the one model of the protocol that the limited key may use."""
    models = {"messages": weir.messages_model, "responses": weir.responses_model, "gemini": weir.gemini_model}
    return models[place.protocol]


def test_the_types_name_models_where_the_documents_say_so():
    assert {str(place) for place in FURTHER} == {
        "messages: fallbacks.[].model",
        "messages: tools.[].model",
        "messages: messages.[].content.[].tool.definition.model",
        "messages: messages.[].content.[].tool_changes.[].tool.definition.model",
        "responses: input.[].tools.[].model",
        "responses: input.[].tools.[].svg.model",
        "responses: moderation.model",
        "responses: tools.[].model",
        "responses: tools.[].svg.model",
        "gemini: generation_config.model_selection_config.feature_selection_preference",
        "gemini: generation_config.routing_config.auto_mode.model_routing_preference",
        "gemini: generation_config.routing_config.manual_mode.model_name",
        "gemini: tools.[].retrieval.vertex_rag_store.rag_retrieval_config.ranking.llm_ranker.model_name",
        "gemini: tools.[].retrieval.vertex_rag_store.rag_retrieval_config.ranking.rank_service.model_name",
    }, "docs/interface.md lists these, and src/domain/wire/json_scan/body_position.rs finds them"


def test_what_else_has_model_in_its_name_is_known():
    assert {name for walk in WALKS for name in walk.others} == NOT_MODELS


@pytest.mark.parametrize("place", FURTHER, ids=str)
def test_a_model_that_the_key_may_not_use_is_refused(weir, place):
    answer = ask(weir.limited(), place.protocol, place.body(OTHER))
    assert answer.status_code == 403, answer.text
    assert OTHER in answer.text


@pytest.mark.parametrize("place", FURTHER, ids=str)
def test_a_model_that_the_key_may_use_passes(weir, place):
    answer = ask(weir.limited(), place.protocol, place.body(own(weir, place)))
    assert answer.status_code == 200, answer.text


@pytest.mark.parametrize("place", FURTHER, ids=str)
def test_a_key_for_all_models_may_name_any(weir, place):
    answer = ask(weir, place.protocol, place.body(OTHER))
    assert answer.status_code == 200, answer.text


@pytest.mark.parametrize("place", HAVE_RUN, ids=str)
def test_a_model_that_has_run_is_history(weir, place):
    answer = ask(weir.limited(), place.protocol, place.body(OTHER))
    assert answer.status_code == 200, answer.text


@pytest.mark.parametrize("place", USER_MAPS, ids=str)
def test_a_map_of_the_users_own_names_no_model(weir, place):
    texts = {"model": OTHER, "models": OTHER, "model_name": OTHER, "modelName": OTHER}
    value = {**texts, "nested": {**texts, "list": [texts]}} if place.is_free else texts
    answer = ask(weir.limited(), place.protocol, place.body(value))
    assert answer.status_code == 200, answer.text
