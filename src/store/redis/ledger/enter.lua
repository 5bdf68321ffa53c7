-- KEYS: the index. ARGV: an account.
redis.call('ZADD', KEYS[1], 0, ARGV[1])
return {'ok'}
