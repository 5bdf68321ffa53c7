-- Records the id of a key as deleted, if no key with this id exists. KEYS after those of the prelude: the deleted keys. ARGV:
-- generation, id.
if redis.call('HEXISTS', RECORDS, ARGV[2]) == 1 then
  return {'conflict', generation}
end
redis.call('HSET', KEYS[9], ARGV[2], '')
return {'ok', generation}
