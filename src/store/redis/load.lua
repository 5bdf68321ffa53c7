-- Adds keys of a backup to a store that has no generation yet. Used without the prelude, which refuses if there is no generation.
-- KEYS: those of the prelude, the deleted keys, the digests of former secrets.
-- ARGV: for each key its digest ('' for a deleted key), its id, its record, created_at, and its last use or ''.
local GENERATION, _, _, IDS, DIGESTS, RECORDS, ORDER, USED, GONE, FORMER = unpack(KEYS)
if redis.call('EXISTS', GENERATION) == 1 then
  return {'conflict', ''}
end
for i = 1, #ARGV, 5 do
  if ARGV[i] == '' then
    redis.call('HSET', GONE, ARGV[i + 1], '')
  else
    redis.call('HSET', IDS, ARGV[i], ARGV[i + 1])
    redis.call('HSET', DIGESTS, ARGV[i + 1], ARGV[i])
    redis.call('HSET', RECORDS, ARGV[i + 1], ARGV[i + 2])
    redis.call('ZADD', ORDER, ARGV[i + 3], ARGV[i + 1])
    local former = former_of(ARGV[i + 2])
    if former ~= '' then
      redis.call('HSET', FORMER, former, ARGV[i + 1])
    end
    if ARGV[i + 4] ~= '' then
      redis.call('HSET', USED, ARGV[i + 1], ARGV[i + 4])
    end
  end
end
return {'ok', ''}
