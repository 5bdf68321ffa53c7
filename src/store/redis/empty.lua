-- Whether there is anything at all. Stands alone: the prelude refuses without a generation. KEYS: those of the prelude.
return {'ok', '', tostring(redis.call('EXISTS', unpack(KEYS)))}
