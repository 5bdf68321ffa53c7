-- Returns the number of the store's Redis keys that exist; 0 means that the store is empty. Used without the prelude, which
-- refuses if there is no generation. KEYS: those of the prelude.
return {'ok', '', tostring(redis.call('EXISTS', unpack(KEYS)))}
