"""What DuckDB and pyarrow read out of the log's Parquet files below a folder: rows and sums, as one JSON object."""

import json
import sys
from pathlib import Path

import duckdb
import pyarrow.compute as compute
import pyarrow.dataset as dataset

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


def by_pyarrow(folder: Path) -> dict:
    files = sorted(str(file) for file in folder.glob("*/*.parquet"))
    table = dataset.dataset(files, format="parquet").to_table()
    sums = {name: compute.sum(table[name]).as_py() for name in SUMMED}
    return {"rows": table.num_rows, "ids": len(set(table["request_id"].to_pylist())), **sums}


def per_key(folder: Path) -> dict:
    """The first of the queries of docs/log.md."""
    query = f"""
        SELECT key_id, sum(cost_nano_usd)::BIGINT FROM read_parquet('{folder}/*/*.parquet')
        WHERE time >= TIMESTAMP '2020-01-01' GROUP BY key_id
    """
    return dict(duckdb.sql(query).fetchall())


if __name__ == "__main__":
    FOLDER = Path(sys.argv[1])
    duckdb.sql("SET TimeZone = 'UTC'")
    print(json.dumps({"duckdb": by_duckdb(FOLDER), "pyarrow": by_pyarrow(FOLDER), "per_key": per_key(FOLDER)}))
