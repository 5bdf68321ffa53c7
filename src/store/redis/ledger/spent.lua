-- Returns the spending of all keys of an account in a period. ARGV: now, generation, the period's name. Reply: for each key its
-- id and its spending in the period.
local _, fault = fields()
if fault then
  return {fault}
end
local reply = {'ok'}
for _, word in ipairs(redis.call('HGETALL', BASE .. 'spent:' .. ARGV[3])) do
  reply[#reply + 1] = word
end
return reply
