-- What was held for a request at its admission, and how many attempts at providers it took; NULL in rows from before. No row is
-- rewritten, and partitions have the columns from their table.
ALTER TABLE weir.log
    ADD COLUMN IF NOT EXISTS hold_nano_usd bigint,
    ADD COLUMN IF NOT EXISTS attempts bigint;
