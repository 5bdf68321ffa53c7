-- Remembers that a key was deleted which is not there.
-- KEYS behind those of the prelude: deleted keys. ARGV: generation, id.
if redis.call('HEXISTS', RECORDS, ARGV[2]) == 1 then
  return {'conflict', generation}
end
redis.call('HSET', KEYS[9], ARGV[2], '')
return {'ok', generation}
