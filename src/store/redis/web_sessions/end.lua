-- Ends a session. Reply: its user, or '' if it had expired or does not exist.
local found = redis.call('HMGET', SESSION, 'who', 'ends', 'until')
if not found[1] then
  return {'ok', generation, ''}
end
redis.call('DEL', SESSION)
redis.call('ZREM', ALL, entry(found[2], found[1]))
if tonumber(found[3]) <= now() then
  return {'ok', generation, ''}
end
return {'ok', generation, found[1]}
