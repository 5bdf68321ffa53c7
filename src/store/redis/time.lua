-- The server's time in milliseconds. Stands alone: it is told whatever the server holds. KEYS: those of the prelude.
local time = redis.call('TIME')
return {'ok', '', string.format('%.0f', tonumber(time[1]) * 1000 + math.floor(tonumber(time[2]) / 1000))}
