-- Replaces the record of a key, if the key still has the record from which the new one was derived.
-- KEYS after those of the prelude: the digests of former secrets.
-- ARGV: generation, maximum length of the feed, id, old record, new record, digest of the new secret, '1' if a secret stops
-- being valid.
local FORMER = KEYS[9]
local record = redis.call('HGET', RECORDS, ARGV[3])
if not record then
  return {'not_found', generation}
end
if record ~= ARGV[4] then
  return {'conflict', generation}
end
local digest = redis.call('HGET', DIGESTS, ARGV[3])
if not digest then
  return {'corrupt', generation, ARGV[3] .. ' has no digest'}
end
local next_digest = ARGV[6]
local former, next_former = former_of(record), former_of(ARGV[5])
local named, is_named = {}, {['']=true}
for _, one in ipairs({digest, former, next_digest, next_former}) do
  local holder = redis.call('HGET', IDS, one) or redis.call('HGET', FORMER, one)
  if holder and holder ~= ARGV[3] then
    return {'duplicate', generation}
  end
  if not is_named[one] then
    is_named[one] = true
    named[#named + 1] = one
  end
end
if ARGV[7] == '1' then
  even_when_full()
end
changed(ARGV[2], unpack(named))
if next_digest ~= digest then
  redis.call('HSET', IDS, next_digest, ARGV[3])
  redis.call('HDEL', IDS, digest)
  redis.call('HSET', DIGESTS, ARGV[3], next_digest)
end
if next_former ~= former then
  redis.call('HDEL', FORMER, former)
  if next_former ~= '' then
    redis.call('HSET', FORMER, next_former, ARGV[3])
  end
end
redis.call('HSET', RECORDS, ARGV[3], ARGV[5])
return {'ok', generation}
