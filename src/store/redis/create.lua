-- KEYS behind those of the prelude: deleted keys. ARGV: generation, feed limit, digest, id, record, created_at.
if redis.call('HEXISTS', IDS, ARGV[3]) == 1 or redis.call('HEXISTS', RECORDS, ARGV[4]) == 1 then
  return {'duplicate', generation}
end
changed(ARGV[2], ARGV[3])
redis.call('HDEL', KEYS[9], ARGV[4])
redis.call('HSET', IDS, ARGV[3], ARGV[4])
redis.call('HSET', DIGESTS, ARGV[4], ARGV[3])
redis.call('HSET', RECORDS, ARGV[4], ARGV[5])
redis.call('ZADD', ORDER, ARGV[6], ARGV[4])
return {'ok', generation}
