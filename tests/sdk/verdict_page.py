"""The tables of docs/translation.md, from the data of tests/translation/verdicts/."""

import tomllib
from pathlib import Path

from verdict_data import FOLDER, PROTOCOLS, verdicts
from verdicts import TARGETS

# The verdicts, those that lose nothing first.
SYMBOLS = ("=", "~", "-", "?", "x-", "x")
PAGE = Path(__file__).parents[2] / "docs/translation.md"


def specification():
    with (FOLDER / "page.toml").open("rb") as file:
        return tomllib.load(file)


def tables():
    """Each table: its head, and all its lines."""
    page = specification()
    for protocol in PROTOCOLS:
        yield page["options"][protocol]["head"], options(protocol, page["options"][protocol])
    yield page["content"]["head"], content(page["content"])


def shown(verdict):
    """A verdict as the page has it: what says nothing to a provider is kept."""
    return "=" if verdict == "o" else verdict


def options(protocol, stated):
    """The table of a client's options: those with the same verdicts in one row."""
    table, groups, few = verdicts(protocol), {}, set()
    rows = []
    for name, before in stated["objects"].items():
        rows += [(before + row, found) for row, found in table.rows[name].items()]
    rows += [(name, table.cases[name]) for name in stated["cases"]]
    left = set(stated["without"] + stated["few"])
    for row, found in rows:
        name = row.partition("=")[0]
        left -= {row, name}
        if set(found) == {"o"} or row in stated["without"] or (name != row and name in stated["without"]):
            continue
        found = tuple(map(shown, found))
        names = groups.setdefault(found, [])
        if row in stated["few"]:
            few.add(found)
        elif text := stated["words"].get(row, f"`{row.replace('=', ': ')}`"):
            names.append(text)
    assert not left, f"page.toml has what the data has not: {left}"
    lines = [stated["head"], "|---|---|---|---|"]
    for found in sorted(groups, key=order):
        names = ", ".join(groups[found]) + (" and the like" if found in few else "")
        lines.append(f"| {names} | {' | '.join(f'`{verdict}`' for verdict in found)} |")
    return lines


def order(found):
    """What is kept before what is lost, and what is the same for all before what is not."""
    return max(map(SYMBOLS.index, found)), len(set(found)), found


def content(stated):
    """The table of content by the providers' protocols, whichever client it comes from."""
    lines = [stated["head"], "|---|---|---|---|---|"]
    for row in stated["row"]:
        cells = [cell(row, target) for target in ("messages", "responses", "gemini", "chat")]
        lines.append(f"| {row['name']} | {' | '.join(cells)} |")
    return lines


def cell(row, target):
    """What becomes of content for a provider: the verdicts of its cases, in words where there are some."""
    texts = [text for names in row["cases"] if (text := all_of(names.split(", "), target))]
    words = row.get(target, "; ".join("{}" for _ in set(texts)))
    if words.count("{}") == 1 and len(set(texts)) == 1:
        texts = texts[:1]
    assert words.count("{}") == len(texts), f"{row['name']}, {target}: {words} for {texts}"
    return words.format(*texts)


def all_of(names, target):
    """The verdicts of the cases of these names, of all clients that speak another protocol than the provider."""
    found = set()
    for protocol in PROTOCOLS:
        cases = verdicts(protocol).cases
        if target != protocol:
            found |= {shown(cases[name][TARGETS[protocol].index(target)]) for name in names if name in cases}
    return " or ".join(f"`{verdict}`" for verdict in sorted(found, key=SYMBOLS.index))


def with_tables(text):
    """The page with these tables."""
    lines = text.split("\n")
    for head, table in tables():
        # A table is known by the name of its first column.
        first = head[: head.index("|", 1) + 1]
        begin = end = next(index for index, line in enumerate(lines) if line.startswith(first))
        while lines[end].startswith("|"):
            end += 1
        lines[begin:end] = table
    return "\n".join(lines)
