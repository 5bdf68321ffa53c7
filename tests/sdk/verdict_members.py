"""The objects that a request can have by the SDKs' own types, named as they are on the wire.

An object's name is the member that holds it, with the `type` or `role` that it states: `content[text]`, `output_config`. Types
with one name (the stable and the beta one, a tool in `tools` and in an item) are one object with the members of all of them. The
request itself has no name.
"""

import enum
import typing
from collections import deque
from dataclasses import dataclass, field

import typing_extensions
from google.genai import types as genai

from state_places import LISTS, MAPS, BetaMessage, Message, Response, alternatives, is_required, literal, members

# The members by which a union tells its objects apart, the first that has one value alone.
TAGS = ("type", "role")
# The types whose objects are not named by the member that holds them first, without the `Beta` that theirs may begin with.
NAMES = {
    "Base64PDFSourceParam": "document.source[base64]",
    "ComparisonFilter": "filters[comparison]",
    "CompoundFilter": "filters[compound]",
    "ContentBlockSourceParam": "document.source[content]",
    "FileDocumentSourceParam": "document.source[file]",
    "FunctionResponseBlobDict": "functionResponse.inlineData",
    "FunctionResponseFileDataDict": "functionResponse.fileData",
    "FunctionResponsePartDict": "functionResponse.parts",
    "ItemReference": "input[item_reference]",
    "MCPToolConfigParam": "mcp_toolset.configs",
    "MCPToolParamParam": "mcp_toolset.tools",
    "McpListToolsTool": "input[mcp_list_tools].tools",
    "ModerationPolicyInput": "policy.input",
    "ModerationPolicyOutput": "policy.output",
    "PlainTextSourceParam": "document.source[text]",
    "SchemaDict": "schema",
    "TextBlockParam": "content[text]",
    "ToolParam": "tools[custom]",
    "ToolSearchToolBm25_20251119Param": "tools[tool_search_tool_bm25]",
    "ToolSearchToolRegex20251119Param": "tools[tool_search_tool_regex]",
    "URLPDFSourceParam": "document.source[url]",
    "WebSearchPreviewToolParam": "tools[web_search_preview]",
    "WebSearchToolParam": "tools[web_search]",
}
# Of an object that several others hold, the member where its own members are tried.
HOMES = ("messages[user].content", "tools")
# What Google's SDK puts into the request itself, and not into `generationConfig`.
GEMINI_TOP = {
    "cached_content": "cachedContent",
    "continuation_token": "continuationToken",
    "generation_output_config": "outputConfig",
    "labels": "labels",
    "model_armor_config": "modelArmorConfig",
    "safety_settings": "safetySettings",
    "service_tier": "serviceTier",
    "store": "store",
    "tool_config": "toolConfig",
    "tools": "tools",
}
# Options of Google's SDK that are never sent, and the instructions, which it brings into another form.
GEMINI_LOCAL = {
    "automatic_continuation",
    "automatic_function_calling",
    "http_options",
    "should_return_http_response",
    "system_instruction",
}


@dataclass(frozen=True)
class Place:
    """A member that holds an object."""

    # The object with the member.
    holder: "Shape" = field(repr=False)
    member: str
    # `[]` for an element of a list and `{}` for a member of a map, the outermost first.
    wraps: tuple

    def __str__(self):
        return ".".join(name for name in (self.holder.name, self.member) if name)


@dataclass(eq=False)
class Shape:
    """An object as one type of an SDK declares it."""

    name: str
    # The SDK's type; None for what no type declares.
    kind: object = None
    tags: dict = field(default_factory=dict)
    # The type of each member.
    hints: dict = field(default_factory=dict)
    required: set = field(default_factory=set)
    # Where it is held. The request itself is held nowhere.
    places: list = field(default_factory=list)


def best(places, stated=None):
    """The place where an object's members are tried: the stated one, or a usual one, or the first; None for the request."""
    preferred = [place for home in (stated, *HOMES) for place in places if str(place) == home]
    return next(iter(preferred or places), None)


def camel(name):
    first, *rest = name.split("_")
    return first + "".join(part.capitalize() for part in rest)


def same(name):
    return name


def tags(kind):
    """What an object of this type says of itself by members that have one value."""
    found = {tag: literal(members(kind).get(tag, object)) for tag in TAGS}
    return {tag: text for tag, text in found.items() if text is not None}


def holdings(hint, wraps=()):
    """The types of the objects that a member can hold, each with what is around it."""
    for kind in alternatives(hint):
        origin, arguments = typing.get_origin(kind), typing.get_args(kind)
        if typing_extensions.is_typeddict(kind):
            yield kind, wraps
        elif origin in LISTS:
            yield from holdings(arguments[0], (*wraps, "[]"))
        elif origin in MAPS:
            yield from holdings(arguments[1], (*wraps, "{}"))


class Walk:
    """Collects the objects below a request, those near to it first."""

    def __init__(self, spelled):
        self.spelled = spelled
        self.shapes = {}
        self.others = []
        self.queue = deque()

    def add(self, kind, place):
        """Adds an object of this type; returns it."""
        shape = self.shapes.get(kind)
        if shape is None:
            says = tags(kind)
            name = place.member + "".join(f"[{text}]" for text in list(says.values())[:1]) if place else ""
            shape = self.shapes[kind] = Shape(NAMES.get(kind.__name__.removeprefix("Beta"), name), kind, says)
            for member, hint in members(kind).items():
                shape.hints[self.spelled(member)] = hint
                if is_required(kind, member, hint):
                    shape.required.add(self.spelled(member))
            self.queue.append(shape)
        if place:
            shape.places.append(place)
        return shape

    def add_members(self, name, hints, place=None):
        """Adds an object that no type declares."""
        shape = Shape(name, None, {}, hints, set(), [place] if place else [])
        self.others.append(shape)
        self.queue.append(shape)
        return shape

    def finish(self):
        """Everything below what was added."""
        while self.queue:
            shape = self.queue.popleft()
            for member, hint in shape.hints.items():
                for kind, wraps in holdings(hint):
                    self.add(kind, Place(shape, member, wraps))
        return [*self.others, *self.shapes.values()]


def gemini_walk():
    """Google's SDK declares a configuration, whose parts go to several places of the request."""
    walk = Walk(camel)
    config = members(genai.GenerateContentConfigDict)
    request = {"contents": list[genai.ContentDict], "systemInstruction": genai.ContentDict, "generationConfig": dict}
    request.update((spelled, config[name]) for name, spelled in GEMINI_TOP.items())
    own = {camel(name): hint for name, hint in config.items() if name not in GEMINI_LOCAL | set(GEMINI_TOP)}
    root = walk.add_members("", request)
    walk.add_members("generationConfig", own, Place(root, "generationConfig", ()))
    return walk


def shapes(protocol):
    """The objects of a protocol's requests."""
    match protocol:
        case "messages":
            walk = Walk(same)
            walk.add(BetaMessage, None)
            walk.add(Message, None)
        case "responses":
            walk = Walk(same)
            walk.add(Response, None)
        case "gemini":
            walk = gemini_walk()
    return walk.finish()


def words(hint):
    """The values that a member can have if it has only some: of a union, those of its parts."""
    for kind in alternatives(hint):
        if typing.get_origin(kind) is typing.Literal:
            yield from typing.get_args(kind)
        elif isinstance(kind, type) and issubclass(kind, enum.Enum):
            yield from (word.value for word in kind)
