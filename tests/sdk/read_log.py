"""What DuckDB and pyarrow read out of the log's Parquet files: rows and sums, as one JSON object.

    read_log.py FOLDER
    read_log.py FOLDER --documented         also what the queries of docs/log.md give
    read_log.py ENDPOINT BUCKET/PREFIX      from a bucket: pyarrow and pandas there, DuckDB from a copy (its httpfs is no part
                                            of the wheel)
"""

import json
import sys
import tempfile
from pathlib import Path

import duckdb
import pandas
import pyarrow.compute as compute
import pyarrow.dataset as dataset
from pyarrow import fs

SUMMED = [
    "cost_nano_usd",
    "input_uncached",
    "cache_read",
    "cache_write_short",
    "cache_write_long",
    "output_text",
    "output_reasoning",
]


def rows(folder: Path) -> str:
    # After a merge rows are there twice for a while; node and number say which row it is.
    return f"(SELECT DISTINCT ON (node, number) * FROM read_parquet('{folder}/*/*.parquet'))"


def by_duckdb(folder: Path) -> dict:
    sums = ", ".join(f"sum({name})::BIGINT" for name in SUMMED)
    question = f"SELECT count(*), count(DISTINCT request_id), {sums} FROM {rows(folder)}"
    [(count, ids, *sums)] = duckdb.sql(question).fetchall()
    return {"rows": count, "ids": ids, **dict(zip(SUMMED, sums))}


def reported(folder: Path) -> list:
    """The tokens of each row that the provider has reported."""
    names = [*SUMMED, "tool_input"]
    columns = ", ".join(names)
    found = duckdb.sql(f"SELECT {columns} FROM {rows(folder)} WHERE usage_source = 'reported'").fetchall()
    return [{**dict(zip(names, row)), "usage_source": "reported"} for row in found]


def files_below(folder: str, where: fs.FileSystem) -> list:
    there = where.get_file_info(fs.FileSelector(folder, recursive=True))
    return sorted(file.path for file in there if file.path.endswith(".parquet"))


def by_pyarrow(folder: str, where: fs.FileSystem) -> dict:
    table = dataset.dataset(files_below(folder, where), format="parquet", filesystem=where).to_table()
    table = table.group_by(["node", "number", "request_id", *SUMMED]).aggregate([])
    sums = {name: compute.sum(table[name]).as_py() for name in SUMMED}
    return {"rows": table.num_rows, "ids": len(set(table["request_id"].to_pylist())), **sums}


def by_pandas(folder: str, where: fs.FileSystem) -> dict:
    files = files_below(folder, where)
    frame = pandas.concat(pandas.read_parquet(file, filesystem=where) for file in files)
    frame = frame.drop_duplicates(["node", "number"])
    sums = {name: int(frame[name].sum()) for name in SUMMED}
    return {"rows": len(frame), "ids": frame["request_id"].nunique(), **sums}


def per_key(folder: Path) -> dict:
    query = f"SELECT key_id, sum(cost_nano_usd)::BIGINT FROM {rows(folder)} GROUP BY key_id"
    return dict(duckdb.sql(query).fetchall())


def documented(folder: Path) -> dict:
    """What the queries of docs/log.md give: the rows of each in SQL, and the bill of each key by the two pieces of Python.

    The month that the document names is November 2026; that of the last row is put in its place."""
    text = (Path(__file__).parents[2] / "docs/log.md").read_text(encoding="utf-8")
    text = text.replace("/var/lib/weir/log", str(folder))
    latest = f"SELECT date_trunc('month', max(time))::DATE FROM {rows(folder)}"
    [(month,)] = duckdb.sql(latest).fetchall()
    after = (month.replace(day=28) + pandas.Timedelta(days=4)).replace(day=1)
    text = text.replace("TIMESTAMPTZ '2026-12-01", f"TIMESTAMPTZ '{after}")
    text = text.replace("TIMESTAMPTZ '2026-11-01", f"TIMESTAMPTZ '{month}")
    blocks = dict.fromkeys(("sql", "python"), "")
    for block in text.split("```")[1::2]:
        language, _, code = block.partition("\n")
        if language in blocks:
            blocks[language] += code
    queries = [query for query in blocks["sql"].split(";") if query.strip()]
    answers = [duckdb.sql(query).to_arrow_table().to_pylist() for query in queries]
    answers = [[list(row.values()) for row in answer] for answer in answers]
    names: dict = {"print": lambda *_: None}
    exec(blocks["python"], names)  # noqa: S102, the document is this repository's own
    bill = {row["key_id"]: row["cost_nano_usd_sum"] for row in names["bill"].to_pylist()}
    frame = {key: int(cost) for key, cost in names["by_key"].items()}
    return {"month": str(month)[:7], "answers": answers, "pyarrow": bill, "pandas": frame}


def bucket(endpoint: str) -> fs.FileSystem:
    scheme, _, host = endpoint.partition("://")
    return fs.S3FileSystem(
        access_key="key", secret_key="secret", region="us-east-1", scheme=scheme, endpoint_override=host
    )


def told(folder: Path, others: tuple, asked: bool) -> str:
    duckdb.sql("SET TimeZone = 'UTC'")
    by = {"duckdb": by_duckdb(folder), "pyarrow": by_pyarrow(*others), "pandas": by_pandas(*others)}
    by.update({"per_key": per_key(folder), "reported": reported(folder)})
    if asked:
        by["documented"] = documented(folder)
    return json.dumps(by, default=str)


if __name__ == "__main__":
    WORDS = [word for word in sys.argv[1:] if word != "--documented"]
    ASKED = "--documented" in sys.argv
    if len(WORDS) == 1:
        print(told(Path(WORDS[0]), (WORDS[0], fs.LocalFileSystem()), ASKED))
    else:
        WHERE = bucket(WORDS[0])
        with tempfile.TemporaryDirectory() as copy:
            fs.copy_files(WORDS[1], copy, source_filesystem=WHERE)
            print(told(Path(copy), (WORDS[1], WHERE), ASKED))
