-- How a request was transported, and the parts that its translation adapted or dropped; NULL for a POST that was not
-- translated, and in rows that were written before this migration. No row is rewritten, and partitions inherit the columns
-- from their table.
ALTER TABLE weir.log
    ADD COLUMN IF NOT EXISTS transport text,
    ADD COLUMN IF NOT EXISTS translated text,
    ADD COLUMN IF NOT EXISTS losses text[];
