"""Every member that the SDKs' own types have of a request is carried over, reported or refused, as tests/translation/verdicts/
says: the data and the types have the same members, and a running weir does what the data says."""

import os
from concurrent.futures import ThreadPoolExecutor
from functools import cache

import pytest

from verdict_data import PROTOCOLS, read, verdicts
from verdict_requests import Requests
from verdict_writing import write_table
from verdicts import TARGETS, Gateway, Observer

# Whether the table is written instead of compared.
WRITES = os.environ.get("WEIR_WRITE") == "1"
# How many requests are on the way at once.
REQUESTS_MAX = 6


@cache
def requests(protocol):
    return Requests(protocol, read(protocol))


@cache
def observed(protocol):
    """What weir makes of each case: its verdicts, each with what is wrong with it."""
    observer = Observer(Gateway(), protocol)
    cases = [*requests(protocol).cases(), *requests(protocol).stated_cases()]

    def observe(case):
        return case, [observer.verdict(case, target) for target in TARGETS[protocol]]

    with ThreadPoolExecutor(REQUESTS_MAX) as threads:
        return list(threads.map(observe, cases))


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_the_data_has_the_members_that_the_types_have(protocol):
    types = requests(protocol).members()
    if WRITES:
        write_table(protocol, observed(protocol), types)
        read.cache_clear()
        verdicts.cache_clear()
    table = verdicts(protocol)
    assert table.members() == types, "a member is new or gone: tests/translation/verdicts/README.md says what to do"


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_the_data_has_no_values_and_places_that_the_types_have_not(protocol):
    cases = requests(protocol).cases()
    table = verdicts(protocol)
    assert table.values() <= {(case.name, case.row) for case in cases}
    assert table.places() <= {(case.name, case.place) for case in cases if not case.row}


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_weir_does_what_the_data_says(protocol):
    table = verdicts(protocol)
    wrong = []
    for case, found in observed(protocol):
        expected = table.of(case)
        for target, word, (verdict, faults) in zip(TARGETS[protocol], expected, found):
            if verdict != word:
                faults = [f"is {verdict}, and the data says {word}", *faults]
            wrong += [f"{case} to {target}: {fault}\n    {case.path} of {case.body}" for fault in faults]
    assert not wrong, "\n".join([f"{len(wrong)} differ", *wrong])


def test_the_data_is_tried_on_many_requests():
    counts = {protocol: len(observed(protocol)) for protocol in PROTOCOLS}
    assert counts["messages"] > 1000 and counts["responses"] > 800 and counts["gemini"] > 450, counts
