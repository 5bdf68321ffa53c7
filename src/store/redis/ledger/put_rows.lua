-- Puts rows back behind those of their day, and adds them to its sums.
-- ARGV: now, generation, day, whether the account has to be there and no row of the day may have left, then a row, its key, and its model, counts and tags for the sums; again and again
local RETENTION_DAYS = 180
local KEPT_MAX_S = 1000000000
local log, day = BASE .. 'log:' .. ARGV[3], opened_day(BASE .. 'sums:' .. ARGV[3])
if ARGV[4] == '1' then
  local _, fault = fields()
  if fault or day.get('trimmed') ~= '' then
    return {fault or 'trimmed'}
  end
end
here(log)
local kept = math.min(KEPT_MAX_S, (tonumber(ARGV[3]) + RETENTION_DAYS + 1) * 86400 - math.floor(now / 1000))
if kept > 0 then
  local rows = {}
  for i = 5, #ARGV, 5 do
    rows[#rows + 1] = ARGV[i]
    sum_row(day, ARGV[i + 1], ARGV[i + 2], ARGV[i + 3], ARGV[i + 4])
  end
  redis.call('RPUSH', log, unpack(rows))
  redis.call('EXPIRE', log, text(kept))
  day.write()
  redis.call('EXPIRE', BASE .. 'sums:' .. ARGV[3], text(kept))
end
return {'ok'}
