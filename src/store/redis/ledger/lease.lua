-- ARGV: now, generation, node, holder, the lease's name, key, its revision, how many run in it, the question's number, what, amount.
-- what: grow, return or end. -> held, since when, mark of recalls, then as `admit.lua` behind its status; or refused; or gone
local PART_OF_LEFT = 16
local ALL_PART_OF_LEFT = 4
local PART_OF_WANTED = 4
local node, holder, name, key = ARGV[3], ARGV[4], ARGV[5], ARGV[6]
local revision, running, turn = tonumber(ARGV[7]), tonumber(ARGV[8]), tonumber(ARGV[9])
local what, amount = ARGV[10], tonumber(ARGV[11])
local values, fault = fields(
  'suspended', 'rpm', 'tpm', 'concurrency', 'wm:' .. node, 'k:' .. key, 'low_balance', 'provider_state', 'recall'
)
if fault then
  return {fault}
end
local balance = values[1]
local alive = living(true)
local held = opened(held_by(holder))
local lease = alive[holder] and lease_of(held, name)
if lease and lease.key ~= key then
  lease = nil
end
local mirror = values[8] and read_mirror(values[8])
local function answer()
  local _, quota = standing(mirror or {}, key, now)
  return {
    'held', text(lease.at), values[11] or '0', text(lease.amount), text(now), balance, values[7] or '0', values[9] or '',
    values[10] or 'own', quota[1], quota[2], quota[3], values[4] or '', values[5] or '', values[6] or '',
  }
end
-- What of an amount may be leased beside what is leased already.
local function part(left, leased)
  return math.min(math.floor(left / PART_OF_LEFT), math.floor(left / ALL_PART_OF_LEFT) - leased)
end
-- By how much the lease grows; nil: it does not.
local function growth()
  if values[3] == '1' or not mirror or mirror.revision ~= revision or mirror.state == 'revoked' then
    return nil
  end
  if mirror.ends and mirror.ends <= math.floor(now / 1000) then
    return nil
  end
  for _, limit in ipairs({mirror.rpm, mirror.tpm, mirror.concurrency, values[4] or '', values[5] or '', values[6] or ''}) do
    if limit ~= '' then
      return nil
    end
  end
  if lease and day_of(lease.at) ~= day_of(now) then
    return nil
  end
  local sums = sums_of(alive, key, periods(now)[mirror.reset])
  local more = math.min(amount, part(tonumber(balance) - sums.held, sums.leased))
  local spent = standing(mirror, key, now)
  if spent then
    more = math.min(more, part(mirror.quota - spent - sums.key_held, sums.key_leased))
  end
  return more > 0 and more >= math.floor(amount / PART_OF_WANTED) and more or nil
end

if lease and turn <= lease.turn then
  return answer()
end
local function keep()
  here(NODES, held_by(holder))
  redis.call('SADD', NODES, holder)
  held.set('until', text(now + LEASE_MS))
  held.write()
  redis.call('PEXPIRE', held_by(holder), HELD_KEPT_MS)
end
if not lease then
  local asked = tonumber(string.sub(name, 7))
  if alive[holder] and asked <= (tonumber(held.get('i:' .. key)) or 0) then
    return {'gone'}
  end
  held.set('i:' .. key, text(asked))
  held.set('leases', '1')
  if what ~= 'grow' then
    keep()
    return {'gone'}
  end
end
local more, is_new = 0, not lease
if what == 'grow' then
  local grown = growth()
  if is_new and not grown then
    keep()
    return {'refused'}
  end
  more = grown or 0
elseif what == 'return' then
  more = -math.max(0, math.min(amount, lease.amount))
else
  more = -lease.amount
end
lease = lease or {amount = 0, at = now, key = key, running = 0, turn = 0}
add_to_lease(held, name, lease, more, names_of(periods(lease.at)))
if what == 'end' then
  runs(held, name, lease, 0, turn)
  held.set('r:' .. name, '')
  held.set('t:' .. name, '')
  here(held_by(holder))
  held.write()
  return {'gone'}
end
runs(held, name, lease, running, turn)
keep()
if more > 0 then
  redis.call('HDEL', STATE, 'near', 'near:' .. key)
end
return answer()
