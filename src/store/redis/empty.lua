-- Counts the keys of the store that exist, so 0 means that the store is empty. Used without the prelude, which refuses if there
-- is no generation. KEYS: those of the prelude.
return {'ok', '', tostring(redis.call('EXISTS', unpack(KEYS)))}
