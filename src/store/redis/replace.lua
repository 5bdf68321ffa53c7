-- Puts a changed record in place of the one it was made from.
-- ARGV: generation, feed limit, id, old record, new record, new digest or '', whether it is revoked with that.
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
if ARGV[7] == '1' then
  even_when_full()
end
if ARGV[6] == '' then
  changed(ARGV[2], digest)
  redis.call('HSET', RECORDS, ARGV[3], ARGV[5])
  return {'ok', generation}
end
if redis.call('HEXISTS', IDS, ARGV[6]) == 1 then
  return {'duplicate', generation}
end
changed(ARGV[2], digest, ARGV[6])
redis.call('HSET', IDS, ARGV[6], ARGV[3])
redis.call('HDEL', IDS, digest)
redis.call('HSET', DIGESTS, ARGV[3], ARGV[6])
redis.call('HSET', RECORDS, ARGV[3], ARGV[5])
return {'ok', generation}
