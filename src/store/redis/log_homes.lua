-- Records a node's log backend, and returns those of all nodes whose records are still valid. KEYS after those of the
-- prelude: the hash of the records. ARGV after the generation: the node, its log backend, and for how many milliseconds the
-- record is valid; the node is '' for a caller that only reads. Reply: for each node its id and its log backend.
local HOMES = KEYS[9]
local time = redis.call('TIME')
local now = tonumber(time[1]) * 1000 + math.floor(tonumber(time[2]) / 1000)
local records = ARGV[2] ~= ''
if records then
  redis.call('HSET', HOMES, ARGV[2], string.format('%.0f', now + tonumber(ARGV[4])) .. ' ' .. ARGV[3])
  redis.call('PEXPIRE', HOMES, ARGV[4])
end
local reply, found = {'ok', generation}, redis.call('HGETALL', HOMES)
for i = 1, #found, 2 do
  local ends, home = string.match(found[i + 1], '^(%d+) (.*)$')
  if ends and tonumber(ends) > now then
    reply[#reply + 1] = found[i]
    reply[#reply + 1] = home
  elseif records then
    redis.call('HDEL', HOMES, found[i])
  end
end
return reply
