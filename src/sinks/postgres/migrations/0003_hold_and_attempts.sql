-- The amount that was held for a request at its admission, and the number of its attempts at providers; NULL in rows that
-- were written before this migration. No row is rewritten, and partitions inherit the columns from their table.
ALTER TABLE weir.log
    ADD COLUMN IF NOT EXISTS hold_nano_usd bigint,
    ADD COLUMN IF NOT EXISTS attempts bigint;
