"""What the SDK tests share. The integration binary (tests/integration/sdk.rs) starts the gateway and sets the environment."""

import copy
import json
import os
import time
from pathlib import Path

import pytest


class Weir:
    """The gateway under test, and the provider behind it."""

    def __init__(self) -> None:
        self.base_url = os.environ["WEIR_BASE_URL"]
        self.provider_url = os.environ["WEIR_PROVIDER_URL"]
        self.key = os.environ["WEIR_KEY"]
        self.limited_key = os.environ["WEIR_LIMITED_KEY"]
        self.ledger_path = Path(os.environ["WEIR_LEDGER"])
        self.messages_model = os.environ["WEIR_MESSAGES_MODEL"]
        self.deepseek_model = os.environ["WEIR_DEEPSEEK_MODEL"]
        self.responses_model = os.environ["WEIR_RESPONSES_MODEL"]
        self.gemini_model = os.environ["WEIR_GEMINI_MODEL"]

    def limited(self) -> "Weir":
        """The same gateway, with a key that may use one model of each protocol."""
        other = copy.copy(self)
        other.key = self.limited_key
        return other

    def ledger_ends(self) -> list[dict]:
        """The ledger's closing lines: what the provider would have billed, one per answer."""
        if not self.ledger_path.exists():
            return []
        lines = [json.loads(line) for line in self.ledger_path.read_text().splitlines()]
        return [line for line in lines if line["event"] == "end"]

    def billed_by(self, call):
        """Makes the call and returns its result and the one ledger line it caused."""
        before = len(self.ledger_ends())
        result = call()
        deadline = time.monotonic() + 20
        while len(ends := self.ledger_ends()) == before:
            assert time.monotonic() < deadline, "the provider's ledger has no line for this request"
        assert len(ends) == before + 1, "one call, one request at the provider"
        return result, ends[-1]


@pytest.fixture(scope="session")
def weir() -> Weir:
    return Weir()


def wrong_key(key: str) -> str:
    """The key with another last character: its checksum does not fit."""
    return key[:-1] + ("a" if key[-1] != "a" else "b")
