-- ARGV: generation, the maximum number of sessions. -> '<digest> <end> <who>' of each session that has not ended, and its end
-- unless it is visited; those that end last first
local found = redis.call('ZRANGE', ALL, -tonumber(ARGV[2]), -1, 'WITHSCORES')
local reply = {'ok', generation}
for place = #found - 1, 1, -2 do
  if tonumber(found[place + 1]) > now() then
    reply[#reply + 1] = found[place]
    reply[#reply + 1] = string.format('%.0f', tonumber(found[place + 1]))
  end
end
return reply
