-- Returns the server's time in milliseconds since the Unix epoch. Used without the prelude, because it does not depend on the
-- server's data. KEYS: those of the prelude.
local time = redis.call('TIME')
return {'ok', '', string.format('%.0f', tonumber(time[1]) * 1000 + math.floor(tonumber(time[2]) / 1000))}
