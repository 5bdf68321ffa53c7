-- Deletes a key.
-- KEYS after those of the prelude: the deleted keys, the digests of former secrets.
-- ARGV: generation, maximum length of the feed, id, the record that must exist ('' if none must exist).
local record = redis.call('HGET', RECORDS, ARGV[3])
if not record and redis.call('HEXISTS', KEYS[9], ARGV[3]) == 1 then
  return {'ok', generation}
end
if not record and ARGV[4] == '' then
  return {'not_found', generation}
end
if record ~= ARGV[4] then
  return {'conflict', generation}
end
local digest = redis.call('HGET', DIGESTS, ARGV[3])
if not digest then
  return {'corrupt', generation, ARGV[3] .. ' has no digest'}
end
even_when_full()
local digests = digests_with(digest, record)
changed(ARGV[2], unpack(digests))
if digests[2] then
  redis.call('HDEL', KEYS[10], digests[2])
end
redis.call('HSET', KEYS[9], ARGV[3], '')
redis.call('HDEL', IDS, digest)
redis.call('HDEL', DIGESTS, ARGV[3])
redis.call('HDEL', RECORDS, ARGV[3])
redis.call('HDEL', USED, ARGV[3])
redis.call('ZREM', ORDER, ARGV[3])
return {'ok', generation}
