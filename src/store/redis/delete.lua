-- ARGV: generation, feed limit, id.
if redis.call('HEXISTS', RECORDS, ARGV[3]) == 0 then
  return {'not_found', generation}
end
local digest = redis.call('HGET', DIGESTS, ARGV[3])
if not digest then
  return {'corrupt', generation, ARGV[3] .. ' has no digest'}
end
changed(ARGV[2], digest)
redis.call('HDEL', IDS, digest)
redis.call('HDEL', DIGESTS, ARGV[3])
redis.call('HDEL', RECORDS, ARGV[3])
redis.call('HDEL', USED, ARGV[3])
redis.call('ZREM', ORDER, ARGV[3])
return {'ok', generation}
