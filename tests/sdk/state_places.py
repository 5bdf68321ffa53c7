"""Where the SDKs' own types have state at a provider, where they name models, and where they have maps of the user's own.

Walks the types of a request as each vendor's package declares them, so that a new version of one tells what is new in it. A
place is the way to it: the names of members, with what the types around it say of themselves (`"type": "mcp"`).
"""

import collections.abc
import enum
import re
import types
import typing
from dataclasses import dataclass, field

import typing_extensions
from anthropic.types.beta.message_create_params import MessageCreateParamsNonStreaming as BetaMessage
from anthropic.types.message_create_params import MessageCreateParamsNonStreaming as Message
from google.genai import types as genai
from openai.types.responses import response_input_param
from openai.types.responses.response_create_params import ResponseCreateParamsNonStreaming as Response

LISTS = (list, tuple, collections.abc.Iterable, collections.abc.Sequence)
MAPS = (dict, collections.abc.Mapping)
UNIONS = (typing.Union, types.UnionType)
WRAPPERS = (typing.Annotated, typing_extensions.Required, typing_extensions.NotRequired)

# Names that identify state wherever a string may stand under them.
STATE = {
    "cached_content",
    "comparison_response_id",
    "container",
    "container_id",
    "conversation",
    "file_id",
    "file_ids",
    "file_search_store_names",
    "file_uri",
    "previous_message_id",
    "previous_response_id",
    "skill_id",
    "tunnel_id",
    "vector_store_ids",
}
# Those of them that say nothing else anywhere, for what a user may call a member of a map.
NAMES = sorted(STATE | {"cachedContent", "fileUri", "fileSearchStoreNames", "id", "prompt"})
# `id` does so below these.
HOLDERS = {"container", "conversation", "prompt"}
# What looks like an identifier and names nothing that lies at the operator's account: parts of the same request, what only
# tells who asks, and what Gemini's own API does not take (Vertex AI does).
NOT_STATE = {
    "api_key_secret_version",
    "approval_request_id",
    "call_id",
    "caller_id",
    "connector_id",
    "data_store",
    "download_id",
    "google_maps_widget_context_token",
    "id_token",
    "rag_file_ids",
    "tab_id",
    "tool_id",
    "tool_use_id",
    "user_id",
    "user_profile_id",
    "workspace_id",
    "output_uri_prefix",
}


# Names of members that name a model, or have the provider choose one.
MODEL = re.compile(r"(^|_)models?(_name|_id)?s?$|^(model_routing|feature_selection)_preference$")
# What has "model" in its name and names none that is run: what holds such members, and where texts are screened.
NOT_MODELS = {"model_armor_config", "model_selection_config"}
# Models that have been run, in what a client sends back of an answer, by the members that hold them.
HAS_RUN = {"from", "to", "svg_usage"}


@dataclass(frozen=True)
class Place:
    """A field of a request."""

    protocol: str
    # Names of members; `[]` is an element of a list, `{}` a member of a map.
    path: tuple
    # For each name, what the type around it says of itself.
    siblings: tuple = field(compare=False, hash=False)
    # Of a map: whether anything may stand in it, at any depth.
    is_free: bool = field(default=False, compare=False)

    def __str__(self):
        return f"{self.protocol}: {'.'.join(self.path)}"

    def body(self, value):
        """The members of a request with this value here."""
        for name, siblings in reversed(list(zip(self.path, self.siblings))):
            match name:
                case "[]":
                    value = [value]
                case "{}":
                    value = {"any": value}
                case _:
                    value = {**siblings, self.spelled(name): value}
        return value

    def spelled(self, name):
        if self.protocol != "gemini":
            return name
        first, *rest = name.split("_")
        return first + "".join(part.capitalize() for part in rest)


def plain(kind):
    """The type without what is only said about it."""
    while True:
        if typing.get_origin(kind) in WRAPPERS:
            kind = typing.get_args(kind)[0]
        elif isinstance(kind, typing_extensions.TypeAliasType):
            kind = kind.__value__
        else:
            return kind


def is_required(kind, name, hint):
    if typing.get_origin(hint) is typing_extensions.NotRequired:
        return False
    return typing.get_origin(hint) is typing_extensions.Required or kind.__total__


def members(kind):
    return typing.get_type_hints(kind, include_extras=True)


def alternatives(kind):
    """The members of a union, or the type itself."""
    kind = plain(kind)
    if typing.get_origin(kind) in UNIONS:
        return [inner for part in typing.get_args(kind) for inner in alternatives(part)]
    return [kind]


def may_be_text(kind):
    if typing.get_origin(kind) in LISTS:
        return any(may_be_text(inner) for inner in alternatives(typing.get_args(kind)[0]))
    return kind is str or typing.get_origin(kind) is typing.Literal or isinstance(kind, type) and issubclass(kind, enum.Enum)


def literal(kind):
    """The one text that a field may have, if there is one."""
    kind = plain(kind)
    texts = typing.get_args(kind) if typing.get_origin(kind) is typing.Literal else ()
    return texts[0] if len(texts) == 1 and isinstance(texts[0], str) else None


def says(kind):
    """What an object of the type says of itself."""
    found = {name: literal(hint) for name, hint in members(kind).items()}
    return {name: text for name, text in found.items() if text is not None}


class Walk:
    """Everything below a type."""

    def __init__(self, protocol):
        self.protocol = protocol
        self.maps, self.strings, self.models, self.others = {}, {}, {}, set()

    def place(self, path, siblings, is_free=False):
        return Place(self.protocol, path, siblings, is_free)

    def into(self, kind, path, siblings, within=()):
        for kind in alternatives(kind):
            origin, arguments = typing.get_origin(kind), typing.get_args(kind)
            if typing_extensions.is_typeddict(kind):
                if kind in within:
                    continue
                own = says(kind)
                for name, hint in members(kind).items():
                    others = {other: text for other, text in own.items() if other != name}
                    self.look_at(name, hint, (*path, name), (*siblings, others))
                    self.into(hint, (*path, name), (*siblings, others), (*within, kind))
            elif origin in LISTS:
                for inner in arguments[:1]:
                    self.into(inner, (*path, "[]"), (*siblings, {}), within)
            elif origin in MAPS:
                inner = alternatives(arguments[1])
                is_free = not any(typing_extensions.is_typeddict(each) for each in inner)
                self.add_map(path, siblings, is_free)
                self.into(arguments[1], (*path, "{}"), (*siblings, {}), within)
            elif kind in (object, typing.Any, dict):
                self.add_map(path, siblings, is_free=True)
            elif kind is str:
                place = self.place(path, siblings)
                self.strings.setdefault(place, place)

    def look_at(self, name, hint, path, siblings):
        """Whether a member may name a model."""
        if MODEL.search(name) and any(may_be_text(kind) for kind in alternatives(hint)):
            place = self.place(path, siblings)
            self.models.setdefault(place, place)
        elif "model" in name:
            self.others.add(name)

    def add_map(self, path, siblings, is_free):
        # What stands in a free map is the user's own as well.
        if "{}" not in path or not is_free:
            place = self.place(path, siblings, is_free)
            self.maps.setdefault(place, place)


def walked(protocol, *roots):
    walk = Walk(protocol)
    for kind, path, siblings in roots:
        if path:
            walk.look_at(path[-1], kind, path, siblings)
        walk.into(kind, path, siblings)
    return walk


def gemini_roots():
    """The SDK's configuration, where its converters put the parts of it."""
    top = {"tools", "tool_config", "safety_settings", "cached_content", "labels", "service_tier", "model_armor_config"}
    # Never sent: options of the client, and forms of the instruction that it brings into this one.
    local = {"http_options", "should_return_http_response", "automatic_function_calling", "system_instruction"}
    yield genai.ContentDict, ("contents", "[]"), ({}, {})
    yield genai.ContentDict, ("system_instruction",), ({},)
    for name, hint in members(genai.GenerateContentConfigDict).items():
        if name in top:
            yield hint, (name,), ({},)
        elif name not in local:
            yield hint, ("generation_config", name), ({}, {})


def walks():
    return [
        walked("messages", (Message, (), ()), (BetaMessage, (), ())),
        walked("responses", (Response, (), ())),
        walked("gemini", *gemini_roots()),
    ]


def holder(place):
    """The name of the member that holds this one."""
    names = [name for name in place.path[:-1] if name not in ("[]", "{}")]
    return names[-1] if names else ""


def is_state(place):
    """Whether a string here identifies state, by its name."""
    names = [name for name in place.path if name != "[]"]
    name = names[-1]
    return name in STATE or name == "id" and holder(place) in HOLDERS


def names_a_further_model(place):
    """Whether a model here is one beside the model that is to answer, and the provider runs it."""
    return len(place.path) > 1 and holder(place) not in HAS_RUN


def looks_like_an_identifier(name):
    return name.endswith(("_id", "_ids", "_uri", "_uris", "_uri_prefix"))


def sample(kind, within=()):
    """A value of the type, with what it has to have."""
    kind = alternatives(kind)[0]
    origin, arguments = typing.get_origin(kind), typing.get_args(kind)
    if typing_extensions.is_typeddict(kind):
        needed = {name: hint for name, hint in members(kind).items() if is_required(kind, name, hint)}
        return {name: sample(hint, (*within, kind)) for name, hint in needed.items() if kind not in within}
    if origin is typing.Literal:
        return arguments[0]
    if origin in LISTS:
        return [sample(arguments[0], within)]
    if origin in MAPS:
        return {"any": "x"}
    return {str: "x", int: 1, float: 1.0, bool: True}.get(kind, {"any": "x"})


def items():
    """Every type of an input item."""
    return alternatives(response_input_param.ResponseInputItemParam)
