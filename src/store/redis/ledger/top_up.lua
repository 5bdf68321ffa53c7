-- Enlarges the hold of a running request. ARGV: now, generation, node, request, the amount to add. Reply: 'granted' and the
-- amount added; or 'refused'; or 'recalling'; or 'no_hold'.
local node, request, more = ARGV[3], ARGV[4], tonumber(ARGV[5])
local values, fault = fields('recall', 'near')
if fault then
  return {fault}
end
local alive = living(true)
local held = hold_of(alive, node, request)
if not held then
  return {'no_hold'}
end
local of_key = redis.call('HMGET', STATE, 'k:' .. held.key, 'near:' .. held.key)
local mirror = of_key[1] and read_mirror(of_key[1]) or {reset = 'none'}
local near = {balance = values[4], quota = of_key[2]}
local period = periods(held.at)
local sums = sums_of(alive, held.key, period[mirror.reset])
local of_balance = tonumber(values[1]) - sums.held
local left = of_balance
if mirror.quota then
  local spent = standing(mirror, held.key, held.at)
  left = math.min(left, mirror.quota - spent - sums.key_held)
end
if more <= 0 then
  return {'refused'}
end
local function recall(changes)
  redis.call('HSET', STATE, 'recall', text(number(values[3]) + 1), unpack(changes))
end
if left <= 0 then
  local is_of_balance = of_balance <= 0
  local leased = is_of_balance and sums.leased or sums.key_leased
  if leased <= 0 then
    return {'refused'}
  end
  local since = is_of_balance and near.balance or not is_of_balance and near.quota
  if not since then
    recall({is_of_balance and 'near' or 'near:' .. held.key, text(now)})
  end
  return {now - number(since or text(now)) < RECALL_MS and 'recalling' or 'refused'}
end
more = math.min(more, left)
held.amount = held.amount + more
hold(node, request, held, more, names_of(period), false)
sums.held = sums.held + more
sums.key_held = sums.key_held + more
if is_lease(request) then
  sums.leased = sums.leased + more
  sums.key_leased = sums.key_leased + more
end
local changes = {}
if note_near(changes, near, sums, tonumber(values[1]), mirror, held.key, held.at) then
  recall(changes)
end
return {'granted', text(more)}
