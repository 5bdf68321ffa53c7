-- Rate limits, as in src/domain/ledger/account/bucket.rs: `b:requests` and `b:tokens` of the account, and the same followed
-- by `:<key>` for a key. The value of each is level|time. The unit of a level is 1/60000 of a request or a token.
local UNIT = 60000
local REFILL_MAX_MS = 120000
local RATE_MAX = 1000000000
local function within(level, capacity)
  return math.max(-capacity, math.min(capacity, level))
end
local function read_bucket(bucket)
  local level, at = string.match(bucket, '^(%-?%d+)|(%-?%d+)$')
  return tonumber(level), tonumber(at)
end
-- Returns the current level of a bucket, of which leases have the part `lent`, and the time of that level.
local function bucket_now(bucket, limit, lent)
  local most = math.min(tonumber(limit), RATE_MAX)
  local capacity = most * UNIT
  local level, at = capacity, now
  if bucket then
    level, at = read_bucket(bucket)
  end
  local passed = math.max(0, math.min(REFILL_MAX_MS, now - at))
  local fills_to = math.max(0, capacity - lent * UNIT)
  return math.max(-capacity, math.min(fills_to, level + most * passed)), math.max(at, now)
end
local function bucket_text(level, at)
  return text(level) .. '|' .. text(at)
end
-- Returns the bucket after `amount` is taken from it; or nil, and the milliseconds until it has that amount.
local function take(bucket, limit, amount, lent)
  local most = math.min(tonumber(limit), RATE_MAX)
  if most == 0 then
    return nil, UNIT
  end
  local level, at = bucket_now(bucket, limit, lent)
  local cost = math.min(amount, most) * UNIT
  if level < cost then
    return nil, math.ceil((cost - level) / most)
  end
  return bucket_text(level - cost, at)
end
-- Returns the bucket after the estimated tokens are replaced by the used ones.
local function correct(bucket, limit, estimated, used)
  local most = math.min(tonumber(limit), RATE_MAX)
  local level, at = read_bucket(bucket)
  local more = (math.min(used, 3 * most) - math.min(estimated, most)) * UNIT
  return bucket_text(within(level - more, most * UNIT), at)
end
