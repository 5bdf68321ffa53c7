-- -> whose it was, or ''
local who = redis.call('HGET', SESSION, 'who') or ''
redis.call('DEL', SESSION)
return {'ok', generation, who}
