-- Tokens of sound and images that providers have counted apart; NULL in rows from before. No row is rewritten, and partitions have
-- the columns from their table.
ALTER TABLE weir.log
    ADD COLUMN IF NOT EXISTS input_audio bigint,
    ADD COLUMN IF NOT EXISTS input_image bigint,
    ADD COLUMN IF NOT EXISTS cache_read_audio bigint,
    ADD COLUMN IF NOT EXISTS cache_read_image bigint,
    ADD COLUMN IF NOT EXISTS output_audio bigint,
    ADD COLUMN IF NOT EXISTS output_image bigint;
