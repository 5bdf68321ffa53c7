-- Whether anything exists. Used without the prelude, which refuses without a generation. KEYS: those of the prelude.
return {'ok', '', tostring(redis.call('EXISTS', unpack(KEYS)))}
