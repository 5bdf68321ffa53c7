"""What weir makes of a member of a request: asked of a running gateway whose providers answer with the body that they got."""

import json
import os
import re
import threading
from dataclasses import dataclass
from http.client import HTTPConnection, HTTPException

# The protocols of providers that a client's requests are translated to, in the order of the data's verdicts.
TARGETS = {
    "messages": ("responses", "gemini", "chat"),
    "responses": ("messages", "gemini", "chat"),
    "gemini": ("messages", "responses", "chat"),
}
# The words of the header `weir-translation`.
LOSSES = {"unknown": "?", "dropped": "-", "adapted": "~"}
STRING = r'"((?:[^"\\]|\\.)*)"'
# A refusal begins with the path that it is about.
REFUSED = re.compile(r"`([^`]+)` ")


@dataclass(frozen=True)
class Reply:
    """An answer to a translated request."""

    # Where the request was refused; None for a request that reached the provider.
    refused: str | None
    # The losses, each as a verdict and a path.
    losses: frozenset
    # The body that the provider got.
    sent: str


class Gateway:
    """The gateway, with a model for each protocol of providers and each mode."""

    def __init__(self):
        self.address = os.environ["WEIR_BASE_URL"].removeprefix("http://")
        self.key = os.environ["WEIR_KEY"]
        self.local = threading.local()

    def ask(self, protocol, target, mode, body):
        """Sends a request to the model whose provider speaks the protocol `target`."""
        model = f"to-{target}-{mode}"
        match protocol:
            case "messages":
                path, head, body = "/v1/messages", {"x-api-key": self.key}, {**body, "model": model}
            case "responses":
                path, head, body = "/v1/responses", {"authorization": f"Bearer {self.key}"}, {**body, "model": model}
            case "gemini":
                path, head = f"/v1beta/models/{model}:generateContent", {"x-goog-api-key": self.key}
        status, headers, answer = self.post(path, head, json.dumps(body))
        answer = json.loads(answer)
        if status == 400 and (refusal := REFUSED.match(answer["error"]["message"])):
            return Reply(refusal[1], frozenset(), "")
        assert status == 200, f"{status} {answer} for {body}"
        return Reply(None, losses(headers["weir-translation"]), text(protocol, answer))

    def post(self, path, head, body):
        head = {**head, "content-type": "application/json"}
        for last in (False, True):
            try:
                if not hasattr(self.local, "connection"):
                    self.local.connection = HTTPConnection(self.address, timeout=60)
                self.local.connection.request("POST", path, body, head)
                answer = self.local.connection.getresponse()
                return answer.status, answer.headers, answer.read()
            except (HTTPException, OSError):
                # A connection that was kept may have been closed meanwhile.
                self.local.connection.close()
                del self.local.connection
                if last:
                    raise


def losses(header):
    """The losses that the header `weir-translation` names."""
    assert "more=" not in header, header
    found = set()
    for word, verdict in LOSSES.items():
        for listed in re.findall(rf"{word}=\(([^)]*)\)", header):
            found.update((verdict, path) for path in re.findall(STRING, listed))
    return frozenset(found)


def text(protocol, answer):
    """The text of an answer in a client's protocol."""
    match protocol:
        case "messages":
            parts = answer["content"]
        case "responses":
            parts = [part for item in answer["output"] for part in item.get("content", [])]
        case "gemini":
            parts = answer["candidates"][0]["content"]["parts"]
    return "".join(part["text"] for part in parts)


def is_about(path, other):
    """Whether a path is another, or one of them is in the other."""
    return path == other or is_within(path, other) or is_within(other, path)


def is_within(path, other):
    """Whether a path is inside another."""
    return other == "" or path.startswith((f"{other}.", f"{other}["))


class Observer:
    """Finds the verdict of members by what weir says of requests that have them."""

    def __init__(self, gateway, protocol):
        self.gateway = gateway
        self.protocol = protocol
        self.replies = {}

    def ask(self, target, mode, body):
        key = (target, mode, json.dumps(body, sort_keys=True))
        if key not in self.replies:
            self.replies[key] = self.gateway.ask(self.protocol, target, mode, body)
        return self.replies[key]

    def verdict(self, case, target):
        """The verdict of a case for a provider's protocol, and what is wrong with how weir states or keeps it."""
        reply = self.ask(target, "strict", case.body)
        bare = self.ask(target, "strict", case.without)
        if reply.refused is not None:
            return self.refusal(case, target, reply, bare)
        added = reply.losses - bare.losses
        new = [loss for loss in added if not any(loss[1] == part or is_within(loss[1], part) for part in case.added)]
        # If the object cannot be without the member, what else is lost of the object is new, too.
        near = case.path if bare.refused is None else case.holder
        faults = [f"{verdict} {path} is reported, too" for verdict, path in new if not is_about(path, near)]
        absent = {case.path} if case.is_absent else set()
        strange = [path for _, path in reply.losses if path not in absent and not is_there(case.body, path)]
        faults += [f"{path} is reported and not in the request" for path in strange]
        is_found = any(mark in reply.sent for mark in case.marks)
        verdict = stated(case.path, new)
        if verdict is None and any(kind in "-?" and is_within(case.path, path) for kind, path in reply.losses):
            verdict = "-"
        if verdict is None:
            has_effect = is_found or bare.refused is not None or bare.sent != reply.sent
            verdict = "=" if has_effect else "o"
        if verdict in "-?" and is_found:
            faults.append("it is reported as left out, and the provider gets it")
        if verdict in "=~" and case.marks and not is_found:
            faults.append("the provider does not get it")
        return verdict, faults

    def refusal(self, case, target, strict, bare):
        lossy = self.ask(target, "lossy", case.body)
        faults = []
        is_own = is_about(strict.refused, case.path) or is_about(strict.refused, case.holder)
        if not is_own and strict.refused != bare.refused:
            faults.append(f"the refusal is about {strict.refused}")
        if lossy.refused is not None:
            return "x", faults
        if not any(verdict in "-?" and is_about(path, case.path) for verdict, path in lossy.losses):
            faults.append("the lossy mode does not report it")
        if case.is_kept and not any(mark in lossy.sent for mark in case.marks):
            faults.append("the lossy mode does not keep its words")
        return "x-", faults


def stated(path, losses):
    """What losses say of a path: those of the path itself before those of its parts, and these before those of its wholes."""
    exact = [verdict for verdict, other in losses if other == path]
    parts = [verdict for verdict, other in losses if is_within(other, path) and other != path]
    wholes = [verdict for verdict, other in losses if is_within(path, other)]
    for found in (exact, parts, wholes):
        for verdict in "?-~":
            if verdict in found:
                return verdict
    return None


def is_there(body, path):
    """Whether a request has a member at a path."""
    for name in re.findall(r"[^.\[\]]+", path):
        if isinstance(body, list) and name.isdigit() and int(name) < len(body):
            body = body[int(name)]
        elif isinstance(body, dict) and name in body:
            body = body[name]
        else:
            return False
    return True
