-- The beginning of the scripts about browser sessions, after the prelude. KEYS[9]: the session, a hash of its person ('who'),
-- its lifetime without a visit ('idle'), its end ('ends') and its end unless it is visited ('until'), in milliseconds. It
-- expires then, which Redis may notice a moment later. KEYS[10]: all sessions, by their ends unless they are visited:
-- '<digest> <end> <who>'.
local SESSION, ALL = KEYS[9], KEYS[10]
local function now()
  local time = redis.call('TIME')
  return tonumber(time[1]) * 1000 + math.floor(tonumber(time[2]) / 1000)
end
local function entry(ends, who)
  return string.match(SESSION, '[^:]*$') .. ' ' .. ends .. ' ' .. who
end
-- Lets the session end after this many milliseconds, unless it is visited.
local function lasts(milliseconds, ends, who)
  local at = string.format('%.0f', now() + milliseconds)
  redis.call('HSET', SESSION, 'until', at)
  redis.call('PEXPIRE', SESSION, string.format('%.0f', milliseconds))
  redis.call('ZADD', ALL, at, entry(ends, who))
end
