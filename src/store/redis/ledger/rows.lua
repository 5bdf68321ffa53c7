-- Returns rows of a day. ARGV: now, generation, day, the number of rows to skip, the maximum number of rows. Reply: the rows.
local _, fault = fields()
if fault then
  return {fault}
end
local skip = tonumber(ARGV[4])
local reply = {'ok'}
for _, row in ipairs(redis.call('LRANGE', BASE .. 'log:' .. ARGV[3], text(skip), text(skip + tonumber(ARGV[5]) - 1))) do
  reply[#reply + 1] = row
end
return reply
