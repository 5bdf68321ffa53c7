-- Takes the rows of a day out, if it is as it was seen. ARGV: now, generation, day, its rows, how many had left before
local _, fault = fields()
if fault then
  return {fault}
end
local log, sums = BASE .. 'log:' .. ARGV[3], BASE .. 'sums:' .. ARGV[3]
local rows, trimmed = tonumber(ARGV[4]), tonumber(ARGV[5])
local summed = redis.call('HEXISTS', sums, 'a') == 1
if redis.call('LLEN', log) ~= rows or (tonumber(redis.call('HGET', sums, 'trimmed')) or 0) ~= trimmed or not summed then
  return {'moved'}
end
if rows > 0 then
  -- The first write: a server that is full takes it, and frees the list in the background.
  redis.call('UNLINK', log)
  redis.call('HSET', sums, 'trimmed', text(trimmed + rows))
end
return {'ok'}
