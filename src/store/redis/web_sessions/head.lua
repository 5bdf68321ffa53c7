-- What the scripts about sessions in browsers begin with, behind the prelude. KEYS[9]: the session, a hash of whose it is
-- ('who'), its time without a visit ('idle') and its end ('ends'), in milliseconds, and of the forms sent in it ('form:...').
-- It expires when it ends.
local SESSION = KEYS[9]
local function now()
  local time = redis.call('TIME')
  return tonumber(time[1]) * 1000 + math.floor(tonumber(time[2]) / 1000)
end
local function lasts(milliseconds)
  redis.call('PEXPIRE', SESSION, string.format('%.0f', milliseconds))
end
