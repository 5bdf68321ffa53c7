"""What DuckDB reads out of the log's Parquet files, again and again until it is ended: one JSON object a line.

    watch_log.py FOLDER

`rows` and `nano_usd` say what was found, and `wrong` what cannot be: requests that are there twice or not any more, and charges
that have changed. Where the files could not be read `error` says why.
"""

import json
import sys

import duckdb


def found(folder: str, before: dict) -> dict:
    question = f"""SELECT request_id, cost_nano_usd
        FROM (SELECT DISTINCT ON (node, number) * FROM read_parquet('{folder}/*/*.parquet'))"""
    try:
        rows = duckdb.sql(question).fetchall()
    except duckdb.Error as error:
        return {"error": str(error)}
    now = dict(rows)
    wrong = [request for request, cost in before.items() if now.get(request) != cost]
    if len(now) < len(rows):
        wrong.append(f"{len(rows) - len(now)} twice")
    before.update(now)
    return {"rows": len(rows), "nano_usd": sum(now.values()), "wrong": wrong}


if __name__ == "__main__":
    BEFORE: dict = {}
    while True:
        print(json.dumps(found(sys.argv[1], BEFORE)), flush=True)
