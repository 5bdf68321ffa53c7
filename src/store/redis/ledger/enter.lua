-- Enters an account into the index of accounts. KEYS: the index. ARGV: the account's name.
redis.call('ZADD', KEYS[1], 0, ARGV[1])
return {'ok'}
