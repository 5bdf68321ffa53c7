-- Returns the spending of a key. ARGV: now, generation, key. Reply: spent in total, today, this week and this month; held;
-- running.
local key = ARGV[3]
local _, fault = fields()
if fault then
  return {fault}
end
local reply = {'ok'}
for _, name in ipairs(names_of(periods(now))) do
  reply[#reply + 1] = redis.call('HGET', BASE .. 'spent:' .. name, key) or '0'
end
local sums = sums_of(living(false), key, 'all')
reply[#reply + 1] = text(sums.key_held)
reply[#reply + 1] = text(total(sums.key_running))
return reply
