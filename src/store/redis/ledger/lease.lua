-- Begins, grows, shrinks or ends a lease. ARGV: now, generation, node, holder, the lease's name, key, the key's revision, the
-- number of requests running from the lease, the call's number, what (grow, return or end), amount, requests and tokens used,
-- requests and tokens wanted free, places wanted (slots of a concurrency limit).
--
-- Reply: 'held', since when, the mark of recalls, requests and tokens given and places or '', then the same as `admit.lua` after
-- its status; or 'refused'; or 'gone'.
local PART_OF_LEFT = 16
local ALL_PART_OF_LEFT = 4
local PART_OF_WANTED = 4
local node, holder, name, key = ARGV[3], ARGV[4], ARGV[5], ARGV[6]
local revision, running, turn = tonumber(ARGV[7]), tonumber(ARGV[8]), tonumber(ARGV[9])
local what, amount = ARGV[10], tonumber(ARGV[11])
local used = {requests = tonumber(ARGV[12]), tokens = tonumber(ARGV[13])}
local free, places = {requests = tonumber(ARGV[14]), tokens = tonumber(ARGV[15])}, tonumber(ARGV[16])
local values, fault = fields(
  'suspended', 'rpm', 'tpm', 'concurrency', 'wm:' .. node, 'k:' .. key, 'low_balance', 'provider_state', 'recall',
  'b:requests', 'b:tokens', 'b:requests:' .. key, 'b:tokens:' .. key
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
local sums = sums_of(alive, key, mirror and periods(now)[mirror.reset] or 'all')
local paces = paces_of(
  key, mirror or {}, {values[4], values[5], values[6]}, {values[12], values[13], values[14], values[15]}, sums
)
local function is_limited(of)
  local counted = of == 'requests' and 1 or 2
  return paces[1].rates[counted].limit or paces[2].rates[counted].limit
end
local function answer()
  local _, quota = standing(mirror or {}, key, now)
  local has_places = places_left(paces[1]) or places_left(paces[2])
  return {
    'held', text(lease.at), values[11] or '0', is_limited('requests') and text(lease.given.requests) or '',
    is_limited('tokens') and text(lease.given.tokens) or '', has_places and text(lease.places) or '', text(lease.amount),
    text(now), balance, values[7] or '0', values[9] or '', values[10] or 'own', quota[1], quota[2], quota[3],
    values[4] or '', values[5] or '', values[6] or '',
  }
end
-- Returns the part of an amount that may be leased in addition to what is leased already.
local function part(left, leased)
  return math.min(math.floor(left / PART_OF_LEFT), math.floor(left / ALL_PART_OF_LEFT) - leased)
end
-- Returns whether the lease may grow.
local function may_grow()
  if what ~= 'grow' or values[3] == '1' or not mirror or mirror.revision ~= revision or mirror.state == 'revoked' then
    return false
  end
  if mirror.ends and mirror.ends <= math.floor(now / 1000) then
    return false
  end
  return not lease or day_of(lease.at) == day_of(now)
end
-- Returns the amount by which the lease grows; nil if it does not.
local function growth()
  local more = math.min(amount, part(tonumber(balance) - sums.held, sums.leased))
  local spent = standing(mirror, key, now)
  if spent then
    more = math.min(more, part(mirror.quota - spent - sums.key_held, sums.key_leased))
  end
  return more > 0 and more >= math.floor(amount / PART_OF_WANTED) and more or nil
end
-- Changes the lease's part of a rate, or its places, from `has` to `wants`; the increase is at most `of`. Returns the new
-- amount, the increase, the returned amount, and whether nothing was missing or the increase is large enough.
local function step(has, wants, of)
  local back, missing = math.max(0, has - wants), math.max(0, wants - has)
  local more = math.min(missing, of)
  local is_enough = more > 0 and more >= math.floor(missing / PART_OF_WANTED)
  if not is_enough then
    more = 0
  end
  return has - back + more, more, back, missing == 0 or is_enough
end
-- Returns the amount of a rate that may be lent; if both key and account limit it, the lesser one; nil if neither does.
local function lendable(counted)
  local least
  for _, pace in ipairs(paces) do
    local rate = pace.rates[counted]
    if rate.limit then
      local level = bucket_now(rate.bucket, rate.limit, rate.lent)
      local capacity = math.min(tonumber(rate.limit), RATE_MAX) * UNIT
      local of = 0
      if level > 0 and level * 2 >= capacity then
        of = math.floor(math.max(0, part(level, rate.lent * UNIT)) / UNIT)
      end
      least = math.min(least or of, of)
    end
  end
  return least
end
local function lendable_places()
  local least
  for _, pace in ipairs(paces) do
    local left, limit = places_left(pace)
    if left then
      local of = left * 2 >= limit and math.max(0, part(left, pace.places)) or 0
      least = math.min(least or of, of)
    end
  end
  return least
end
-- Returns the lease after this call, whether it lacks nothing or got some of each rate and of the places, and the fields of
-- buckets to write and to remove.
local function paced(grows)
  local before = lease or {used = {requests = 0, tokens = 0}, given = {requests = 0, tokens = 0}, places = 0}
  local after = {running = running, turn = turn, used = {}, given = {}, places = running}
  local is_whole, moved = true, {}
  local wanted, wanted_places = free, places
  if what == 'end' then
    wanted, wanted_places = {requests = 0, tokens = 0}, 0
  end
  for counted, of in ipairs({'requests', 'tokens'}) do
    after.used[of] = math.max(used[of], before.used[of])
    local lent = math.max(before.given[of], after.used[of]) - after.used[of]
    local part_of = lendable(counted)
    local has, more, back, is_all = 0, 0, 0, true
    if part_of then
      has, more, back, is_all = step(lent, wanted[of], grows and part_of or 0)
    end
    after.given[of] = after.used[of] + has
    moved[counted] = back - more
    is_whole = is_whole and is_all
  end
  local of_places = lendable_places()
  if of_places then
    local has, _, _, is_all = step(before.places, wanted_places, grows and of_places or 0)
    after.places = has
    is_whole = is_whole and is_all
  end
  local written, removed = {}, {}
  for _, pace in ipairs(paces) do
    for counted, rate in ipairs(pace.rates) do
      if rate.limit then
        local level, at = bucket_now(rate.bucket, rate.limit, rate.lent)
        local capacity = math.min(tonumber(rate.limit), RATE_MAX) * UNIT
        written[#written + 1] = rate.name
        written[#written + 1] = bucket_text(within(level + moved[counted] * UNIT, capacity), at)
      elseif rate.bucket then
        removed[#removed + 1] = rate.name
      end
    end
  end
  return after, is_whole, written, removed
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
local more, is_new, grows = 0, not lease, may_grow()
local after, is_whole, written, removed = paced(grows)
if what == 'grow' then
  local grown = grows and growth()
  if is_new and not (grown and is_whole) then
    keep()
    return {'refused'}
  end
  more = grown or 0
elseif what == 'return' then
  more = -math.max(0, math.min(amount, lease.amount))
else
  more = -lease.amount
end
local function keep_paces()
  if #written > 0 then
    redis.call('HSET', STATE, unpack(written))
  end
  if #removed > 0 then
    redis.call('HDEL', STATE, unpack(removed))
  end
end
lease = lease or {
  amount = 0, at = now, key = key, running = 0, turn = 0, used = {requests = 0, tokens = 0}, given = {requests = 0, tokens = 0},
  places = 0,
}
add_to_lease(held, name, lease, more, names_of(periods(lease.at)))
if what == 'end' then
  after.running, after.places = 0, 0
  runs(held, name, lease, after)
  held.set('r:' .. name, '')
  held.set('t:' .. name, '')
  here(held_by(holder))
  held.write()
  keep_paces()
  return {'gone'}
end
runs(held, name, lease, after)
keep()
keep_paces()
if more > 0 then
  redis.call('HDEL', STATE, 'near', 'near:' .. key)
end
if is_new then
  redis.call('HDEL', STATE, 'near_pace', 'near_pace:' .. key)
end
return answer()
