-- Removes the rows of a day, if there are as many as were seen. ARGV: now, generation, day, the number of rows seen.
local _, fault = fields()
if fault then
  return {fault}
end
local log = BASE .. 'log:' .. ARGV[3]
if redis.call('LLEN', log) ~= tonumber(ARGV[4]) then
  return {'changed'}
end
-- The server frees the list in the background, and accepts this command even when its memory is full.
redis.call('UNLINK', log)
return {'ok'}
