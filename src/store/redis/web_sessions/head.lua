-- The beginning of the scripts about browser sessions, after the prelude. KEYS[9] is the session: a hash with its user ('who'),
-- its lifetime without a visit ('idle'), when it expires in any case ('ends') and when it expires without a further visit
-- ('until'), all in milliseconds. The key itself also expires at 'until', which Redis may do slightly later. KEYS[10] contains
-- all sessions, by 'until', as '<digest> <ends> <who>'.
local SESSION, ALL = KEYS[9], KEYS[10]
local function now()
  local time = redis.call('TIME')
  return tonumber(time[1]) * 1000 + math.floor(tonumber(time[2]) / 1000)
end
local function entry(ends, who)
  return string.match(SESSION, '[^:]*$') .. ' ' .. ends .. ' ' .. who
end
-- Sets the session to expire after this many milliseconds without a visit.
local function lasts(milliseconds, ends, who)
  local at = string.format('%.0f', now() + milliseconds)
  redis.call('HSET', SESSION, 'until', at)
  redis.call('PEXPIRE', SESSION, string.format('%.0f', milliseconds))
  redis.call('ZADD', ALL, at, entry(ends, who))
end
