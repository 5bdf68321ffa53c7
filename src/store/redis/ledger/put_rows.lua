-- Puts rows back behind those of their day. ARGV: now, generation, day, rows.
local RETENTION_DAYS = 180
local KEPT_MAX_S = 1000000000
local log = BASE .. 'log:' .. ARGV[3]
local kept = math.min(KEPT_MAX_S, (tonumber(ARGV[3]) + RETENTION_DAYS + 1) * 86400 - math.floor(now / 1000))
if kept > 0 then
  redis.call('RPUSH', log, unpack(ARGV, 4))
  redis.call('EXPIRE', log, text(kept))
end
return {'ok'}
