-- The numbers of audio and image tokens, if the provider has counted them separately; NULL in rows that were written before
-- this migration. No row is rewritten, and partitions inherit the columns from their table.
ALTER TABLE weir.log
    ADD COLUMN IF NOT EXISTS input_audio bigint,
    ADD COLUMN IF NOT EXISTS input_image bigint,
    ADD COLUMN IF NOT EXISTS cache_read_audio bigint,
    ADD COLUMN IF NOT EXISTS cache_read_image bigint,
    ADD COLUMN IF NOT EXISTS output_audio bigint,
    ADD COLUMN IF NOT EXISTS output_image bigint;
