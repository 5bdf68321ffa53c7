-- Up to which record of their journals the rows of nodes are in the daily sums. ARGV: now, generation. -> node, number; again and
-- again
local _, fault = fields()
if fault then
  return {fault}
end
local reply = {'ok'}
for _, field in ipairs(redis.call('HKEYS', STATE)) do
  local of = string.match(field, '^sum:(.*)$')
  if of then
    reply[#reply + 1] = of
    reply[#reply + 1] = redis.call('HGET', STATE, field)
  end
end
return reply
