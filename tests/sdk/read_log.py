"""What DuckDB and pyarrow read out of the log's Parquet files: rows and sums, as one JSON object.

    read_log.py FOLDER
    read_log.py ENDPOINT BUCKET/PREFIX      from a bucket: pyarrow there, DuckDB from a copy (its httpfs is no part of the wheel)
"""

import json
import sys
import tempfile
from pathlib import Path

import duckdb
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


def by_duckdb(folder: Path) -> dict:
    sums = ", ".join(f"sum({name})::BIGINT" for name in SUMMED)
    # A merge that is under way has rows twice for a moment; node and number say which row it is.
    rows = f"(SELECT DISTINCT ON (node, number) * FROM read_parquet('{folder}/*/*.parquet'))"
    question = f"SELECT count(*), count(DISTINCT request_id), {sums} FROM {rows}"
    [(count, ids, *sums)] = duckdb.sql(question).fetchall()
    return {"rows": count, "ids": ids, **dict(zip(SUMMED, sums))}


def by_pyarrow(folder: str, where: fs.FileSystem) -> dict:
    there = where.get_file_info(fs.FileSelector(folder, recursive=True))
    files = sorted(file.path for file in there if file.path.endswith(".parquet"))
    table = dataset.dataset(files, format="parquet", filesystem=where).to_table()
    if not isinstance(where, fs.LocalFileSystem):
        # What was on its way when a process ended may be there a second time until the day is merged.
        firsts = [("request_id", "min")] + [(name, "min") for name in SUMMED]
        table = table.group_by(["node", "number"]).aggregate(firsts)
        table = table.rename_columns([name.removesuffix("_min") for name in table.column_names])
    sums = {name: compute.sum(table[name]).as_py() for name in SUMMED}
    return {"rows": table.num_rows, "ids": len(set(table["request_id"].to_pylist())), **sums}


def per_key(folder: Path) -> dict:
    query = f"""
        SELECT key_id, sum(cost_nano_usd)::BIGINT FROM read_parquet('{folder}/*/*.parquet')
        WHERE time >= TIMESTAMP '2020-01-01' GROUP BY key_id
    """
    return dict(duckdb.sql(query).fetchall())


def documented(folder: Path) -> dict:
    """What the queries of docs/log.md give: how many rows each in SQL, and the bill of each key in Python."""
    text = (Path(__file__).parents[2] / "docs/log.md").read_text(encoding="utf-8")
    text = text.replace("/var/lib/weir/log", str(folder))
    blocks = dict.fromkeys(("sql", "python"), "")
    for block in text.split("```")[1::2]:
        language, _, code = block.partition("\n")
        if language in blocks:
            blocks[language] += code
    queries = [query for query in blocks["sql"].split(";") if query.strip()]
    rows = [duckdb.sql(f"SELECT count(*) FROM ({query})").fetchall()[0][0] for query in queries]
    names: dict = {"print": lambda *_: None}
    exec(blocks["python"], names)  # noqa: S102, the document is this repository's own
    bill = {row["key_id"]: row["cost_nano_usd_sum"] for row in names["bill"].to_pylist()}
    return {"rows": rows, "bill": bill}


def bucket(endpoint: str) -> fs.FileSystem:
    scheme, _, host = endpoint.partition("://")
    return fs.S3FileSystem(
        access_key="key", secret_key="secret", region="us-east-1", scheme=scheme, endpoint_override=host
    )


def told(folder: Path, pyarrow: dict) -> str:
    duckdb.sql("SET TimeZone = 'UTC'")
    by = {"duckdb": by_duckdb(folder), "pyarrow": pyarrow, "per_key": per_key(folder)}
    return json.dumps({**by, "documented": documented(folder)})


if __name__ == "__main__":
    if len(sys.argv) == 2:
        FOLDER = Path(sys.argv[1])
        print(told(FOLDER, by_pyarrow(str(FOLDER), fs.LocalFileSystem())))
    else:
        WHERE = bucket(sys.argv[1])
        with tempfile.TemporaryDirectory() as copy:
            fs.copy_files(sys.argv[2], copy, source_filesystem=WHERE)
            print(told(Path(copy), by_pyarrow(sys.argv[2], WHERE)))
