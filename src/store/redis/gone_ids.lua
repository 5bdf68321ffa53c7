-- KEYS after those of the prelude: deleted keys. -> their ids
local reply = {'ok', generation}
for _, id in ipairs(redis.call('HKEYS', KEYS[9])) do
  reply[#reply + 1] = id
end
return reply
