-- Lists the sessions that have not expired, those that expire last first. ARGV: generation, the maximum number of sessions.
-- Reply: for each session '<digest> <ends> <who>', and when it expires without a further visit.
local found = redis.call('ZRANGE', ALL, -tonumber(ARGV[2]), -1, 'WITHSCORES')
local reply = {'ok', generation}
for place = #found - 1, 1, -2 do
  if tonumber(found[place + 1]) > now() then
    reply[#reply + 1] = found[place]
    reply[#reply + 1] = string.format('%.0f', tonumber(found[place + 1]))
  end
end
return reply
