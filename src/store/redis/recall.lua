-- KEYS behind those of the prelude: the session. -> who served it, or ''
return {'ok', generation, redis.call('GET', KEYS[9]) or ''}
