-- The consumption log, one partition per day (UTC), and how far each node's rows are in it.
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
    -- No number of a node twice; the partition's column has to be part of it.
    PRIMARY KEY (node, number, time)
) PARTITION BY RANGE (time);

-- In the order that pages are read in.
CREATE INDEX log_by_account ON weir.log (account, time, node, number);

CREATE TABLE weir.sink (
    node text COLLATE "C" PRIMARY KEY,
    upto bigint NOT NULL,
    changed_at timestamptz NOT NULL DEFAULT now()
);

-- Makes the partition of a day, unless it is there. It is attached, not created in place, because that takes a lock which
-- neither readers nor writers wait for.
CREATE FUNCTION weir.make_partition(of_day date) RETURNS void
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp SET lock_timeout = '5s' AS $$
DECLARE
    partition text := 'log_' || to_char(of_day, 'YYYYMMDD');
BEGIN
    -- One at a time, also from several nodes.
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

-- Drops the oldest partition whose day is more than so many days ago, by this server's clock; NULL: there is none. One at a
-- time, so that a clock that jumps ahead for a moment takes one day and no more.
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
