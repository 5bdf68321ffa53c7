-- ARGV: now, generation, node, request, by how much. -> granted, how much; or refused; or no_hold
local node, request, more = ARGV[3], ARGV[4], tonumber(ARGV[5])
local values, fault = fields()
if fault then
  return {fault}
end
local alive = living(true)
local held = hold_of(alive, node, request)
if not held then
  return {'no_hold'}
end
local mirror = redis.call('HGET', STATE, 'k:' .. held.key)
mirror = mirror and read_mirror(mirror) or {reset = 'none'}
local period = periods(held.at)
local sums = sums_of(alive, held.key, period[mirror.reset])
local left = tonumber(values[1]) - sums.held
if mirror.quota then
  local spent = number(redis.call('HGET', BASE .. 'spent:' .. period[mirror.reset], held.key))
  left = math.min(left, mirror.quota - spent - sums.key_held)
end
more = math.min(more, left)
if more <= 0 then
  return {'refused'}
end
held.amount = held.amount + more
hold(node, request, held, more, names_of(period), false)
return {'granted', text(more)}
