-- Puts the sums of a day in the place of those that are there, unless it has other rows by now than they are the sums of, or some have left.
-- ARGV: now, generation, day, how many rows, how many tags, then a subject and its sums by model; again and again
local RETENTION_DAYS = 180
local KEPT_MAX_S = 1000000000
local _, fault = fields()
if fault then
  return {fault}
end
local sums = BASE .. 'sums:' .. ARGV[3]
local kept = math.min(KEPT_MAX_S, (tonumber(ARGV[3]) + RETENTION_DAYS + 1) * 86400 - math.floor(now / 1000))
if redis.call('HEXISTS', sums, 'trimmed') == 1 then
  return {'trimmed'}
end
if redis.call('LLEN', BASE .. 'log:' .. ARGV[3]) ~= tonumber(ARGV[4]) then
  return {'moved'}
end
here(sums)
redis.call('DEL', sums)
if #ARGV > 5 and kept > 0 then
  redis.call('HSET', sums, 'tags', ARGV[5])
  for i = 6, #ARGV, 2 do
    redis.call('HSET', sums, ARGV[i], ARGV[i + 1])
  end
  redis.call('EXPIRE', sums, text(kept))
end
return {'ok'}
