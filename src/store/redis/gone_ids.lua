-- Returns the ids of deleted keys. KEYS after those of the prelude: the deleted keys. Reply: their ids.
local reply = {'ok', generation}
for _, id in ipairs(redis.call('HKEYS', KEYS[9])) do
  reply[#reply + 1] = id
end
return reply
