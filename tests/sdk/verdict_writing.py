"""Writes the table of a data file as weir does it now, for a person to compare with what it should do (WEIR_WRITE=1)."""

import json
from collections import Counter

from verdict_data import FOLDER

WIDTH_MAX = 130


def write_table(protocol, observed, names):
    """Replaces the table: `observed` has a case and its verdicts, `names` the objects in their order."""
    members, places = {name: {} for name in names}, {name: {} for name in names}
    for case, found in observed:
        if case.name is None:
            continue
        verdict = joined([verdict for verdict, _ in found])
        if case.row:
            members[case.name].setdefault(case.row.partition("=")[0], {})[case.row] = verdict
        else:
            places[case.name][case.place] = verdict
    short, long = [], []
    for name in names:
        rows = by_verdict(members[name])
        others = by_place(places[name], next(iter(rows)) if len(rows) == 1 else "=")
        line = f"{json.dumps(name)} = {inline(rows)}"
        if others or len(line) > WIDTH_MAX:
            long += ["", f"[verdicts.{json.dumps(name)}]", *lines(rows)]
            long += ["", f"[verdicts.{json.dumps(name)}.at]", *lines(others)] if others else []
        else:
            short.append(line)
    path = FOLDER / f"{protocol}.toml"
    head, mark, _ = path.read_text().partition("[verdicts]\n")
    assert mark, f"{path} has no line [verdicts]"
    path.write_text("\n".join([head + "[verdicts]", *short, *long, ""]))


def joined(verdicts):
    return verdicts[0] if len(set(verdicts)) == 1 else " ".join(verdicts)


def by_verdict(members):
    """The rows of an object: each member under the verdict of most of its values, and the values with another one under that."""
    found = {}
    for member, values in members.items():
        counts = Counter(values.values())
        said = [verdict for verdict in counts if verdict != "o"]
        usual = values.get(member) or (said[0] if len(said) == 1 else counts.most_common(1)[0][0])
        found.setdefault(usual, []).append(member)
        for row, verdict in values.items():
            if verdict != usual:
                found.setdefault(verdict, []).append(row)
    return found


def by_place(places, usual):
    found = {}
    for place, verdict in places.items():
        if verdict != usual:
            found.setdefault(verdict, []).append(place)
    return found


def inline(rows):
    texts = [f"{json.dumps(verdict)} = {json.dumps(names)}" for verdict, names in rows.items()]
    return f"{{ {', '.join(texts)} }}" if texts else "{}"


def lines(rows):
    for verdict, names in rows.items():
        line = f"{json.dumps(verdict)} = {json.dumps(names)}"
        if len(line) <= WIDTH_MAX:
            yield line
            continue
        yield f"{json.dumps(verdict)} = ["
        line = "   "
        for name in map(json.dumps, names):
            if len(line) + len(name) + 2 > WIDTH_MAX:
                yield line
                line = "   "
            line += f" {name},"
        yield line
        yield "]"
