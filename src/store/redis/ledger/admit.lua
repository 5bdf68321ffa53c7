-- Admits a request and places its hold. ARGV: now, generation, node, request, key, its terms (8 values, as in mirror.lua),
-- estimate, tokens, the numbers of ended requests of the key and of the account. Reply: 'granted', hold, time, balance,
-- watermark, low balance or '', provider state, then quota, spent amount of it and end of its period or '' (all three '' without
-- a quota), then requests, tokens and concurrency of the account or ''; or 'refused' and the reason; or 'stale'.
local node, request, key = ARGV[3], ARGV[4], ARGV[5]
local told = table.concat(ARGV, '|', 6, 13)
local mirror = read_mirror(told)
local estimate, tokens = tonumber(ARGV[14]), tonumber(ARGV[15])
local ended_key, ended_account = tonumber(ARGV[16]), tonumber(ARGV[17])
local values, fault = fields(
  'suspended', 'rpm', 'tpm', 'concurrency', 'wm:' .. node, 'k:' .. key,
  'b:requests', 'b:tokens', 'b:requests:' .. key, 'b:tokens:' .. key, 'low_balance', 'provider_state', 'recall', 'near',
  'near:' .. key, 'near_pace:' .. key, 'near_pace'
)
local balance, watermark, low_balance = values[1], values[7] or '0', values[13] or ''
local function refusal()
  if mirror.state == 'revoked' then
    return {'refused', 'revoked'}
  end
  if mirror.ends and mirror.ends <= math.floor(now / 1000) then
    return {'refused', 'expired'}
  end
end
if fault then
  -- Faults of the key are reported first, because they do not depend on an account.
  return fault == 'missing' and refusal() or {fault}
end
local alive = living(true)
local function granted(amount, at, quota)
  return {
    'granted', text(amount), text(at), balance, watermark, low_balance, values[14] or 'own', quota[1], quota[2], quota[3],
    values[4] or '', values[5] or '', values[6] or '',
  }
end
local known = hold_of(alive, node, request)
if known then
  local _, quota = standing(values[8] and read_mirror(values[8]) or {}, key, known.at)
  return granted(known.amount, known.at, quota)
end
local is_news = true
if values[8] then
  local earlier = read_mirror(values[8])
  if earlier.revision > mirror.revision then
    return {'stale'}
  end
  is_news = earlier.revision < mirror.revision
  if not is_news then
    mirror = earlier
  end
end
local period = periods(now)
local sums = sums_of(alive, key, period[mirror.reset])
local paces = paces_of(
  key, mirror, {values[4], values[5], values[6]}, {values[9], values[10], values[11], values[12]}, sums
)

-- Makes all checks. Returns a refusal; or nil, the fields to write and to remove, the amount of the hold, and the use of the
-- quota.
local function check()
  local denied = refusal()
  if denied then
    return denied
  end
  if values[3] == '1' then
    return {'refused', 'suspended'}
  end
  if tonumber(balance) <= 0 then
    return {'refused', 'balance'}
  end
  local left = tonumber(balance) - sums.held
  if left <= 0 then
    return {'refused', 'balance_held'}
  end
  local spent, quota = standing(mirror, key, now)
  if spent then
    local of_quota = mirror.quota - spent - sums.key_held
    if of_quota <= 0 then
      return {'refused', spent >= mirror.quota and 'quota' or 'quota_held', unpack(quota)}
    end
    left = math.min(left, of_quota)
  end
  for i, ended in ipairs({ended_key, ended_account}) do
    local pace = paces[i]
    local limit = tonumber(pace.concurrency or '')
    if limit and total(pace.running, node, ended) + pace.places >= limit then
      return {'refused', 'concurrency', pace.scope, pace.concurrency, pace.places > 0 and '1' or ''}
    end
  end
  local written, removed = {}, {}
  for _, pace in ipairs(paces) do
    for _, rate in ipairs(pace.rates) do
      if rate.limit then
        local cost = rate.counted == 'requests' and 1 or tokens
        local after, retry = take(rate.bucket, rate.limit, cost, rate.lent)
        if not after then
          local lent = rate.lent > 0 and '1' or ''
          return {'refused', 'rate', pace.scope, rate.counted, rate.limit, text(retry), lent}
        end
        written[#written + 1] = rate.name
        written[#written + 1] = after
      elseif rate.bucket then
        removed[#removed + 1] = rate.name
      end
    end
  end
  return nil, written, removed, math.min(math.max(0, estimate), left), quota
end

local denied, written, removed, amount, quota = check()
-- Leases have to be returned if the key has a later revision, or if a limit is near.
local moved, changes = 0, {}
if is_news and values[8] and sums.key_leased > 0 then
  moved = 1
end
sums.held = sums.held + (amount or 0)
sums.key_held = sums.key_held + (amount or 0)
local pace_is_near = note_near_paces(changes, {values[18], values[19]}, paces, key)
local money_is_near =
  note_near(changes, {balance = values[16], quota = values[17]}, sums, tonumber(balance), mirror, key, now)
if pace_is_near or money_is_near then
  moved = moved + 1
end
if moved > 0 then
  changes[#changes + 1] = 'recall'
  changes[#changes + 1] = text(number(values[15]) + moved)
end
if is_news then
  changes[#changes + 1] = 'k:' .. key
  changes[#changes + 1] = told
end
if denied then
  if is_news then
    redis.call('HSET', STATE, unpack(changes))
  elseif #changes > 0 then
    -- The refusal is valid even if this cannot be written.
    redis.pcall('HSET', STATE, unpack(changes))
  end
  return denied
end
here(NODES, held_by(node))
redis.call('SADD', NODES, node)
hold(node, request, {amount = amount, at = now, key = key}, amount, names_of(period), true)
for _, word in ipairs(changes) do
  written[#written + 1] = word
end
if #written > 0 then
  redis.call('HSET', STATE, unpack(written))
end
if #removed > 0 then
  redis.call('HDEL', STATE, unpack(removed))
end
return granted(amount, now, quota)
