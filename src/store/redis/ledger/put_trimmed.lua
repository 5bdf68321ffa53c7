-- Puts back what a backup knows of rows that had left before it: how many they are, and what they add up to.
-- ARGV: now, generation, day, how many, then a subject, a model, what it counts; again and again
local RETENTION_DAYS = 180
local KEPT_MAX_S = 1000000000
local name = BASE .. 'sums:' .. ARGV[3]
local day = opened_day(name)
local kept = math.min(KEPT_MAX_S, (tonumber(ARGV[3]) + RETENTION_DAYS + 1) * 86400 - math.floor(now / 1000))
if kept > 0 then
  day.add('trimmed', tonumber(ARGV[4]))
  for i = 5, #ARGV, 3 do
    local subject = ARGV[i]
    if string.sub(subject, 1, 2) == 't:' and not day.has(subject) then
      day.add(TAGS, 1)
    end
    day.count(subject, ARGV[i + 1], numbers(ARGV[i + 2]))
  end
  day.write()
  redis.call('EXPIRE', name, text(kept))
end
return {'ok'}
