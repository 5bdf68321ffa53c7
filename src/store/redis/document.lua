-- KEYS after those of the prelude: a document. -> its text, or ''
return {'ok', generation, redis.call('GET', KEYS[9]) or ''}
