-- Records a visit of a session. Reply: the session's user, or '' if it has expired or does not exist.
local found = redis.call('HMGET', SESSION, 'who', 'idle', 'ends', 'until')
if not found[1] or tonumber(found[4]) <= now() then
  return {'ok', generation, ''}
end
lasts(math.min(tonumber(found[2]), tonumber(found[3]) - now()), found[3], found[1])
return {'ok', generation, found[1]}
