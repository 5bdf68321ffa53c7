-- KEYS after those of the prelude: hours. -> for each hour the number of words that follow, then fields and values
local reply = {'ok', generation}
for i = 9, #KEYS do
  local fields = redis.call('HGETALL', KEYS[i])
  reply[#reply + 1] = string.format('%d', #fields)
  for _, word in ipairs(fields) do
    reply[#reply + 1] = word
  end
end
return reply
