-- Reads stability hours. KEYS after those of the prelude: the hours. Reply: for each hour the number of words that follow, then
-- its fields and values.
local reply = {'ok', generation}
for i = 9, #KEYS do
  local fields = redis.call('HGETALL', KEYS[i])
  reply[#reply + 1] = string.format('%d', #fields)
  for _, word in ipairs(fields) do
    reply[#reply + 1] = word
  end
end
return reply
