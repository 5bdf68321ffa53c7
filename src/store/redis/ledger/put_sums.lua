-- Stores sums of a day. Either they replace all existing sums, if the account's sums still have as many requests as were seen;
-- or, while a backup is restored, each replaces that of its subject. They are written one by one, because there may be more than
-- `unpack` can take.
--
-- ARGV: now, generation, day, the number of requests seen or '' for a backup, then a sequence of a subject and its sums by model.
local RETENTION_DAYS = 180
local KEPT_MAX_S = 1000000000
local TAGS = 'tags'
local sums, seen = BASE .. 'sums:' .. ARGV[3], tonumber(ARGV[4])
if seen then
  local _, fault = fields()
  if fault then
    return {fault}
  end
  local requests = 0
  for of_model in string.gmatch(redis.call('HGET', sums, 'a') or '', '=(%d*)|') do
    requests = requests + (tonumber(of_model) or 0)
  end
  if requests ~= seen then
    return {'changed'}
  end
end
here(sums)
if seen then
  redis.call('DEL', sums)
end
local kept = math.min(KEPT_MAX_S, (tonumber(ARGV[3]) + RETENTION_DAYS + 1) * 86400 - math.floor(now / 1000))
if kept > 0 and #ARGV > 4 then
  local tags = tonumber(redis.call('HGET', sums, TAGS)) or 0
  for i = 5, #ARGV, 2 do
    local is_new = redis.call('HSET', sums, ARGV[i], ARGV[i + 1]) == 1
    if is_new and string.sub(ARGV[i], 1, 2) == 't:' then
      tags = tags + 1
    end
  end
  redis.call('HSET', sums, TAGS, text(tags))
  redis.call('EXPIRE', sums, text(kept))
end
return {'ok'}
