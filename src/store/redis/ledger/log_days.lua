-- Returns the days that have rows. ARGV: now, generation, the first day, the last day. Reply: a sequence of a day and its number
-- of rows.
local _, fault = fields()
if fault then
  return {fault}
end
local reply = {'ok'}
for number = tonumber(ARGV[3]), tonumber(ARGV[4]) do
  local day = text(number)
  local rows = redis.call('LLEN', BASE .. 'log:' .. day)
  if rows > 0 then
    reply[#reply + 1] = day
    reply[#reply + 1] = text(rows)
  end
end
return reply
