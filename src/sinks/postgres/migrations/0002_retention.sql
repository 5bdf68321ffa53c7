-- The time at which a day was last dropped, by this server's clock. The table has one row, or none if no day was dropped yet.
CREATE TABLE weir.retention (
    one boolean PRIMARY KEY DEFAULT true CHECK (one),
    dropped_at timestamptz NOT NULL
);

-- Drops the oldest partition if its day is more than `keep_days` days ago by this server's clock, and returns the day. NULL
-- if there is no such partition, or if one was dropped less than an hour ago. At most one partition is dropped per hour,
-- however often this is called: a clock that jumps ahead for an hour costs at most one day of rows.
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
        -- The clock was ahead when the time was recorded. The hour begins again now.
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
