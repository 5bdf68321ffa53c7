-- Appends rows to their day. ARGV: now, generation, day, '1' if the account must exist, then the rows.
local RETENTION_DAYS = 180
local KEPT_MAX_S = 1000000000
if ARGV[4] == '1' then
  local _, fault = fields()
  if fault then
    return {fault}
  end
end
local log = BASE .. 'log:' .. ARGV[3]
here(log)
local kept = math.min(KEPT_MAX_S, (tonumber(ARGV[3]) + RETENTION_DAYS + 1) * 86400 - math.floor(now / 1000))
if kept > 0 and #ARGV > 4 then
  redis.call('RPUSH', log, unpack(ARGV, 5))
  redis.call('EXPIRE', log, text(kept))
end
return {'ok'}
