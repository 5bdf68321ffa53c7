"""The data of tests/translation/verdicts/."""

import tomllib
from functools import cache
from pathlib import Path

FOLDER = Path(__file__).parent.parent / "translation/verdicts"
# The protocols of clients.
PROTOCOLS = ("messages", "responses", "gemini")
SYMBOLS = {"=", "~", "-", "?", "x-", "x", "o"}


@cache
def read(protocol):
    with (FOLDER / f"{protocol}.toml").open("rb") as file:
        return tomllib.load(file)


class Verdicts:
    """The verdicts of a client's protocol, by object."""

    def __init__(self, data):
        self.cases = {name: symbols(case["verdict"]) for name, case in data["cases"].items()}
        self.rows = {name: by_row(table) for name, table in data["verdicts"].items()}
        self.at = {name: by_row(table.get("at", {})) for name, table in data["verdicts"].items()}

    def members(self):
        """The members of each object; a row with a value is none."""
        return {name: {row for row in rows if "=" not in row} for name, rows in self.rows.items()}

    def values(self):
        """The objects and rows that have a value of a member."""
        return {(name, row) for name, rows in self.rows.items() for row in rows if "=" in row}

    def places(self):
        """The objects and the places where their verdict is another."""
        return {(name, place) for name, places in self.at.items() for place in places}

    def of(self, case):
        """The verdicts of a case, one for each of the providers' protocols."""
        if case.name is None:
            return self.cases[case.row]
        rows = self.rows[case.name]
        if case.row:
            return rows.get(case.row) or rows[case.row.partition("=")[0]]
        # In its other places an object is carried over, unless all of it has one verdict everywhere or the data says otherwise.
        everywhere = set(rows.values())
        usual = everywhere.pop() if len(everywhere) == 1 else symbols("=")
        return self.at[case.name].get(case.place, usual)


@cache
def verdicts(protocol):
    return Verdicts(read(protocol))


def by_row(table):
    found = {}
    for verdict, rows in table.items():
        if verdict == "at":
            continue
        for row in rows:
            assert row not in found, f"{row} has two verdicts"
            found[row] = symbols(verdict)
    return found


def symbols(verdict):
    """A verdict for each of the providers' protocols."""
    found = tuple(verdict.split())
    assert len(found) in (1, 3) and SYMBOLS >= set(found), verdict
    return found * 3 if len(found) == 1 else found
