-- The consumption log, with one partition per day (UTC), and the watermark of each node's rows.
CREATE TABLE weir.log (
    node text COLLATE "C" NOT NULL,
    number bigint NOT NULL,
    time timestamptz NOT NULL,
    admitted_at timestamptz NOT NULL,
    request_id text NOT NULL,
    account text COLLATE "C" NOT NULL,
    key_id text NOT NULL,
    protocol text NOT NULL,
    model_asked text NOT NULL,
    model text NOT NULL,
    provider text NOT NULL,
    status integer NOT NULL,
    outcome text NOT NULL,
    stream boolean NOT NULL,
    input_uncached bigint NOT NULL,
    cache_read bigint NOT NULL,
    cache_write_short bigint NOT NULL,
    cache_write_long bigint NOT NULL,
    output_text bigint NOT NULL,
    output_reasoning bigint NOT NULL,
    tool_input bigint NOT NULL,
    web_searches bigint NOT NULL,
    web_fetches bigint NOT NULL,
    file_searches bigint NOT NULL,
    code_interpreter_calls bigint NOT NULL,
    image_generations bigint NOT NULL,
    usage_source text NOT NULL,
    service_tier text,
    speed text,
    geo text,
    price_version text NOT NULL,
    cost_nano_usd bigint NOT NULL,
    latency_ms bigint NOT NULL,
    ttft_ms bigint,
    parts jsonb,
    tags text[] NOT NULL,
    -- A node's numbers are unique. A primary key must include the column by which the table is partitioned.
    PRIMARY KEY (node, number, time)
) PARTITION BY RANGE (time);

-- In the order in which pages are read.
CREATE INDEX log_by_account ON weir.log (account, time, node, number);

CREATE TABLE weir.sink (
    node text COLLATE "C" PRIMARY KEY,
    upto bigint NOT NULL,
    changed_at timestamptz NOT NULL DEFAULT now()
);

-- Creates the partition of a day, unless it exists. The partition is created as a table of its own and then attached, because
-- neither readers nor writers wait for the lock that this takes.
CREATE FUNCTION weir.make_partition(of_day date) RETURNS void
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp SET lock_timeout = '5s' AS $$
DECLARE
    partition text := 'log_' || to_char(of_day, 'YYYYMMDD');
BEGIN
    -- Only one partition is created at a time, even if several nodes call this.
    PERFORM pg_advisory_xact_lock(7523094288207667297);
    IF EXISTS (
        SELECT FROM pg_inherits JOIN pg_class ON pg_class.oid = inhrelid
        WHERE inhparent = 'weir.log'::regclass AND relname = partition
    ) THEN
        RETURN;
    END IF;
    EXECUTE format('CREATE TABLE weir.%I (LIKE weir.log INCLUDING DEFAULTS INCLUDING CONSTRAINTS)', partition);
    EXECUTE format(
        'ALTER TABLE weir.log ATTACH PARTITION weir.%I FOR VALUES FROM (%L) TO (%L)',
        partition, of_day::timestamp AT TIME ZONE 'UTC', (of_day + 1)::timestamp AT TIME ZONE 'UTC'
    );
END
$$;

-- Drops the oldest partition if its day is more than `keep_days` days ago by this server's clock, and returns the day; NULL
-- if there is no such partition. A call drops only one partition, so that a clock that jumps ahead for a moment costs at most
-- one day of rows.
CREATE FUNCTION weir.drop_oldest(keep_days integer) RETURNS date
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp SET lock_timeout = '5s' AS $$
DECLARE
    oldest date;
BEGIN
    IF keep_days < 1 THEN
        RAISE EXCEPTION 'keep_days is %, and at least 1', keep_days;
    END IF;
    PERFORM pg_advisory_xact_lock(7523094288207667297);
    SELECT min(to_date(substr(relname, 5), 'YYYYMMDD')) INTO oldest
    FROM pg_inherits JOIN pg_class ON pg_class.oid = inhrelid
    WHERE inhparent = 'weir.log'::regclass AND relname ~ '^log_[0-9]{8}$';
    IF oldest IS NULL OR oldest >= (now() AT TIME ZONE 'UTC')::date - keep_days THEN
        RETURN NULL;
    END IF;
    EXECUTE format('DROP TABLE weir.%I', 'log_' || to_char(oldest, 'YYYYMMDD'));
    RETURN oldest;
END
$$;

REVOKE ALL ON FUNCTION weir.make_partition(date), weir.drop_oldest(integer) FROM PUBLIC;
