-- Adds a key.
-- KEYS after those of the prelude: the deleted keys, the digests of former secrets.
-- ARGV: generation, maximum length of the feed, digest, id, record, created_at, revision.
if ARGV[7] == '0' and redis.call('HEXISTS', KEYS[9], ARGV[4]) == 1 then
  return {'deleted', generation}
end
if redis.call('HEXISTS', RECORDS, ARGV[4]) == 1 then
  return {'duplicate', generation}
end
local digests = digests_with(ARGV[3], ARGV[5])
for _, digest in ipairs(digests) do
  if redis.call('HEXISTS', IDS, digest) == 1 or redis.call('HEXISTS', KEYS[10], digest) == 1 then
    return {'duplicate', generation}
  end
end
changed(ARGV[2], unpack(digests))
redis.call('HDEL', KEYS[9], ARGV[4])
redis.call('HSET', IDS, ARGV[3], ARGV[4])
redis.call('HSET', DIGESTS, ARGV[4], ARGV[3])
redis.call('HSET', RECORDS, ARGV[4], ARGV[5])
redis.call('ZADD', ORDER, ARGV[6], ARGV[4])
if digests[2] then
  redis.call('HSET', KEYS[10], digests[2], ARGV[4])
end
return {'ok', generation}
