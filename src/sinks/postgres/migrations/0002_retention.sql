-- When a day was dropped last, by this server's clock: one row, or none yet.
CREATE TABLE weir.retention (
    one boolean PRIMARY KEY DEFAULT true CHECK (one),
    dropped_at timestamptz NOT NULL
);

-- Drops the oldest partition whose day is more than so many days ago, by this server's clock; NULL: there is none, or it is not
-- time. One an hour, whoever asks and however often: a clock that jumps ahead for an hour takes one day.
CREATE OR REPLACE FUNCTION weir.drop_oldest(keep_days integer) RETURNS date
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp SET lock_timeout = '5s' AS $$
DECLARE
    last timestamptz;
    oldest date;
BEGIN
    IF keep_days < 1 THEN
        RAISE EXCEPTION 'keep_days is %, and at least 1', keep_days;
    END IF;
    PERFORM pg_advisory_xact_lock(7523094288207667297);
    SELECT dropped_at INTO last FROM weir.retention;
    IF last > now() THEN
        -- The clock was ahead. From now on it is an hour again.
        UPDATE weir.retention SET dropped_at = now();
        RETURN NULL;
    END IF;
    IF last > now() - interval '1 hour' THEN
        RETURN NULL;
    END IF;
    SELECT min(to_date(substr(relname, 5), 'YYYYMMDD')) INTO oldest
    FROM pg_inherits JOIN pg_class ON pg_class.oid = inhrelid
    WHERE inhparent = 'weir.log'::regclass AND relname ~ '^log_[0-9]{8}$';
    IF oldest IS NULL OR oldest >= (now() AT TIME ZONE 'UTC')::date - keep_days THEN
        RETURN NULL;
    END IF;
    EXECUTE format('DROP TABLE weir.%I', 'log_' || to_char(oldest, 'YYYYMMDD'));
    INSERT INTO weir.retention (dropped_at) VALUES (now())
    ON CONFLICT (one) DO UPDATE SET dropped_at = excluded.dropped_at;
    RETURN oldest;
END
$$;
