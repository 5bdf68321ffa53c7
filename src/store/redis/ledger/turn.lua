-- KEYS: the turn at a task. ARGV: the node that asks for it, for how many milliseconds. -> 1 if it has it, else 0
local holder = redis.call('GET', KEYS[1])
if holder and holder ~= ARGV[1] then
  return {'ok', '0'}
end
redis.call('SET', KEYS[1], ARGV[1], 'PX', ARGV[2])
return {'ok', '1'}
