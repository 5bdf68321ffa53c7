"""The tables of docs/translation.md say what the data of tests/translation/verdicts/ says. WEIR_WRITE=1 writes them."""

import os
import re

import pytest

from verdict_data import verdicts
from verdict_page import PAGE, shown, specification, with_tables

TOOLS = specification()["tools"]


def test_the_tables_of_the_page_are_those_of_the_data():
    page = PAGE.read_text()
    expected = with_tables(page)
    if os.environ.get("WEIR_WRITE") == "1":
        PAGE.write_text(expected)
        return
    assert page == expected, "docs/translation.md: WEIR_WRITE=1 writes its tables"


@pytest.mark.parametrize("beginning", TOOLS)
def test_the_table_of_tools_names_the_verdicts_of_the_data(beginning):
    (line,) = [line for line in PAGE.read_text().split("\n") if line.startswith(f"| {beginning}")]
    named = set(re.findall("`([=~-]|x-?)`", line))
    found = set()
    for protocol, rows in TOOLS[beginning].items():
        table = verdicts(protocol)
        for row in rows:
            name, _, member = row.rpartition(".")
            found |= set(map(shown, table.cases[row] if row in table.cases else table.rows[name][member]))
    # What is kept is not said.
    assert found - {"="} == named - {"="}, line
