-- ARGV: now, generation, the first day, the last. -> a day, its rows, and how many have left for the log's home; again and again
local _, fault = fields()
if fault then
  return {fault}
end
local reply = {'ok'}
for number = tonumber(ARGV[3]), tonumber(ARGV[4]) do
  local day = text(number)
  local rows = redis.call('LLEN', BASE .. 'log:' .. day)
  local trimmed = redis.call('HGET', BASE .. 'sums:' .. day, 'trimmed') or '0'
  if rows > 0 or trimmed ~= '0' then
    reply[#reply + 1] = day
    reply[#reply + 1] = text(rows)
    reply[#reply + 1] = trimmed
  end
end
return reply
