-- ARGV: generation, feed limit, generation to begin with, digest, id, record, created_at.
if redis.call('HEXISTS', IDS, ARGV[4]) == 1 or redis.call('HEXISTS', RECORDS, ARGV[5]) == 1 then
  return {'duplicate', generation}
end
changed(ARGV[2], ARGV[4])
if generation == '' then
  generation = ARGV[3]
  redis.call('SET', GENERATION, generation)
end
redis.call('HSET', IDS, ARGV[4], ARGV[5])
redis.call('HSET', DIGESTS, ARGV[5], ARGV[4])
redis.call('HSET', RECORDS, ARGV[5], ARGV[6])
redis.call('ZADD', ORDER, ARGV[7], ARGV[5])
return {'ok', generation}
