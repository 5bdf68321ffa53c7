-- -> whose it is, or ''
local found = redis.call('HMGET', SESSION, 'who', 'idle', 'ends')
if not found[1] then
  return {'ok', generation, ''}
end
lasts(math.min(tonumber(found[2]), tonumber(found[3]) - now()), found[3], found[1])
return {'ok', generation, found[1]}
