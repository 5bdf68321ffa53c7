-- Begins a session, or gives an existing one to another user. ARGV: generation, the user, the lifetime without a visit and the
-- maximum lifetime, in milliseconds.
local found = redis.call('HMGET', SESSION, 'who', 'idle', 'ends', 'until')
if found[1] and tonumber(found[4]) > now() then
  redis.call('HSET', SESSION, 'who', ARGV[2])
  redis.call('ZREM', ALL, entry(found[3], found[1]))
  lasts(math.min(tonumber(found[2]), tonumber(found[3]) - now()), found[3], ARGV[2])
  return {'ok', generation}
end
local ends = string.format('%.0f', now() + tonumber(ARGV[4]))
redis.call('HSET', SESSION, 'who', ARGV[2], 'idle', ARGV[3], 'ends', ends)
lasts(math.min(tonumber(ARGV[3]), tonumber(ARGV[4])), ends, ARGV[2])
-- Removes expired sessions from the list. At each begin, more are removed than are added, so they do not accumulate.
local oldest = redis.call('ZRANGE', ALL, 0, 9, 'WITHSCORES')
for place = 1, #oldest, 2 do
  if tonumber(oldest[place + 1]) <= now() then
    redis.call('ZREM', ALL, oldest[place])
  end
end
return {'ok', generation}
