"""The smallest requests that have one member each, made from the SDKs' own types.

What the types alone do not tell is in the data: `values` and `each` have values of members, `beside` has what an object needs
next to a member, `homes` says which of several holders an object is tried in. A text is the marker, and a number has its digits,
so that it can be found in what the provider gets.
"""

import copy
import json
import typing
from dataclasses import dataclass

from state_places import LISTS, MAPS, alternatives
from verdict_members import best, holdings, shapes, words
from verdict_settling import settle

MARKER = "m4rk3r"
# The marker in base64.
ENCODED = "bTRyazNy"
NUMBER = 7301
# Values of the member that a request is about.
MARKED = {str: MARKER, int: NUMBER, float: 0.7301, bool: True}
# Values of what an object must have beside it.
PLAIN = {str: "other", int: 1, float: 1.0, bool: True}

# A question and nothing else, of which nothing is lost.
QUESTIONS = {
    "messages": {"max_tokens": 100, "messages": [{"role": "user", "content": "hi"}]},
    "responses": {"store": False, "max_output_tokens": 100, "input": [{"role": "user", "content": "hi"}]},
    "gemini": {"contents": [{"role": "user", "parts": [{"text": "hi"}]}], "generationConfig": {"maxOutputTokens": 100}},
}


@dataclass(frozen=True)
class Case:
    """A request with a member, and the same one without it."""

    # The name of the object; None for a whole request of the data.
    name: str | None
    # The row of the table: the member, with its value if it has only some. Empty for the object itself in another place.
    row: str
    place: str
    # Where the member is in the request, and where its object is.
    path: str
    holder: str
    body: dict
    without: dict
    # Where the request has calls, results and turns that were only added to make it a whole.
    added: tuple
    # The texts of the value that can be found again.
    marks: tuple
    # The member is reported although it is not there: its default would mean something else.
    is_absent: bool = False
    # The lossy mode keeps the texts as text.
    is_kept: bool = False

    def __str__(self):
        return self.row if self.name is None else f"{self.name}.{self.row} in {self.place or 'its usual place'}"


class Requests:
    """All cases of a protocol's requests."""

    def __init__(self, protocol, data):
        self.protocol = protocol
        self.data = data
        self.shapes = shapes(protocol)
        self.by_kind = {shape.kind: shape for shape in self.shapes if shape.kind}

    def members(self):
        """The members of each object, by its name."""
        found = {}
        for shape in self.shapes:
            found.setdefault(shape.name, set()).update(shape.hints)
        return found

    def stated(self, table, *names):
        """What a table of the data says of an object's member."""
        return copy.deepcopy(self.data.get(table, {}).get(".".join(names)))

    def cases(self):
        """One for each value of each member where the object is tried, and one for each other place of the object."""
        found = {}
        for name in self.members():
            same = [shape for shape in self.shapes if shape.name == name]
            # The members of an object are tried in one place, but for those that it has only elsewhere.
            same.sort(key=lambda shape: best(shape.places, self.stated("homes", name)) is not self.home(name))
            tried = set()
            for shape in same:
                home = best(shape.places, self.stated("homes", name))
                for member in [member for member in shape.hints if member not in tried]:
                    for row, value in self.tried(shape, member, shape.hints[member]):
                        found[name, row, ""] = self.case(shape, home, member, row, value)
                tried |= shape.hints.keys()
            for shape in same:
                for place in shape.places:
                    if str(place) != str(self.home(name)):
                        found.setdefault((name, "", str(place)), self.case(shape, place))
        return list(found.values())

    def home(self, name):
        """The place where the members of the objects with this name are tried."""
        stated = self.stated("homes", name)
        places = [place for shape in self.shapes if shape.name == name for place in shape.places]
        return best(places, stated)

    def stated_cases(self):
        """The cases that the data has as whole requests."""
        for name, case in self.data["cases"].items():
            question = QUESTIONS[self.protocol]
            body = {**question, **json.loads(case["request"])}
            body = {member: value for member, value in body.items() if value is not None}
            path, added = case["path"], tuple(case.get("beside", []))
            holder = path.rpartition(".")[0]
            flags = {flag: case.get(flag, False) for flag in ("is_absent", "is_kept")}
            yield Case(None, name, "", path, holder, body, question, added, marks(case["request"]), **flags)

    def case(self, shape, place, member=None, row="", value=None):
        target = self.least(shape, member)
        if member:
            target[member] = value
            bare, bare_place, absent = dict(target), place, member
        else:
            bare, bare_place, absent = self.least(place.holder, place.member), self.home(place.holder.name), place.member
        bare.pop(absent, None)
        body, holder, added = self.request(target, place)
        without, _, _ = self.request(copy.deepcopy(bare), bare_place)
        path = ".".join(name for name in (holder, member) if name)
        # What the provider gets of some values is another value.
        is_turned = f"{shape.name}.{row}" in self.data.get("turned", [])
        found = marks(json.dumps(value)) if member and not is_turned else ()
        return Case(shape.name, row, str(place or ""), path, holder, body, without, added, found)

    def tried(self, shape, member, hint):
        """The values to try a member with, each with its row."""
        value = self.stated("values", shape.name, member)
        if value is not None:
            return [(member, value)]
        several = self.stated("each", shape.name, member)
        if several:
            return [(f"{member}={word}" if word else member, value) for word, value in several.items()]
        if member in shape.tags:
            return [(member, shape.tags[member])]
        kinds = alternatives(hint)
        lists = [typing.get_args(kind)[0] for kind in kinds if typing.get_origin(kind) in LISTS]
        found = [(f"{member}={str(word).lower() if word is False else word}", word) for word in words(hint)]
        found += [(f"{member}={word}", [word]) for inner in lists if str not in alternatives(inner) for word in words(inner)]
        found += [(f"{member}={str(flag).lower()}", flag) for flag in (True, False) if bool in kinds]
        # Words do not count where any text is taken.
        found = [] if str in kinds else found
        if not found or {str, int, float} & set(kinds):
            found.append((member, self.sample(hint, MARKED)))
        return found

    def sample(self, hint, simple, within=()):
        """A value of the type; a text or a number if it can be one."""
        kinds = alternatives(hint)
        values = [simple[kind] for kind in kinds if kind in (str, int, float)] or list(words(hint))
        values += [simple[kind] for kind in kinds if kind is bool]
        if values:
            return values[0]
        for kind in kinds:
            origin, arguments = typing.get_origin(kind), typing.get_args(kind)
            if origin in LISTS:
                return [self.sample(arguments[0], simple, within)]
            if origin in MAPS:
                return {"any": self.sample(arguments[1], simple, within)}
        for kind, _ in holdings(hint):
            shape = self.by_kind[kind]
            return {} if shape in within else self.least(shape, None, simple, (*within, shape))
        return {"any": simple[str]}

    def least(self, shape, member, simple=PLAIN, within=()):
        """An object with what it must have, and with what must be beside the member."""
        found = dict(shape.tags)
        for name in shape.hints:
            if name in shape.required - shape.tags.keys() - {member} and shape.name:
                value = self.stated("values", shape.name, name)
                found[name] = self.sample(shape.hints[name], simple, (*within, shape)) if value is None else value
        if simple is PLAIN:
            found = json.loads(json.dumps(found).replace(MARKER, PLAIN[str]).replace(ENCODED, "eA=="))
        found.update(self.stated("beside", shape.name) or {})
        found.update(self.stated("beside", shape.name, member) or {} if member else {})
        return found

    def request(self, target, place):
        """The request with the object at this place, the object's path, and the paths of what was added."""
        inner = target
        while place:
            for wrap in reversed(place.wraps):
                inner = [inner] if wrap == "[]" else {"any": inner}
            holder = self.least(place.holder, place.member)
            holder[place.member] = inner
            inner, place = holder, self.home(place.holder.name)
        body = {**copy.deepcopy(QUESTIONS[self.protocol]), **inner}
        added = settle(self.protocol, body)
        path = "" if inner is target else path_of(body, target)
        return body, path, tuple(path_of(body, part) for part in added)


def marks(text):
    """The texts by which a value is found again. What is in base64 may become text."""
    found = [mark for mark in (MARKER, ENCODED, str(NUMBER)) if mark in text]
    return (*found, MARKER) if ENCODED in found else tuple(found)


def path_of(value, target, path=""):
    """The path of an object in a value; None if it is not there."""
    if value is target:
        return path
    if isinstance(value, dict):
        inner = ((f"{path}.{name}" if path else name, part) for name, part in value.items())
    elif isinstance(value, list):
        inner = ((f"{path}[{index}]", part) for index, part in enumerate(value))
    else:
        return None
    return next((found for name, part in inner if (found := path_of(part, target, name)) is not None), None)
