-- How a request came, and what its translation adapted or dropped; NULL for a POST that was not translated, and in rows from before.
-- No row is rewritten, and partitions have the columns from their table.
ALTER TABLE weir.log
    ADD COLUMN IF NOT EXISTS transport text,
    ADD COLUMN IF NOT EXISTS translated text,
    ADD COLUMN IF NOT EXISTS losses text[];
