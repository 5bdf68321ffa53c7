-- Returns the last row of each node that is in the daily sums, by its number in the node's journal. ARGV: now, generation. Reply:
-- for each node its id and that number.
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
