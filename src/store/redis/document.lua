-- Reads a sign-in document. KEYS after those of the prelude: the document. Reply: its text, or '' if it does not exist.
return {'ok', generation, redis.call('GET', KEYS[9]) or ''}
