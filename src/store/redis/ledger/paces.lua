-- Rates and places (slots of a concurrency limit), as in src/domain/ledger/account/pace.rs.
-- Returns a rate; its `limit` is nil if there is none.
local function rate(counted, limit, bucket, name, lent)
  return {counted = counted, limit = limit and limit ~= '' and limit or nil, bucket = bucket, name = name, lent = lent}
end
-- Returns the limits of a key and of its account, with their use. `limits` are the account's requests, tokens and concurrency.
-- `buckets` are those of the account's requests and tokens, and those of the key's.
local function paces_of(key, mirror, limits, buckets, sums)
  return {
    {
      scope = 'key', concurrency = mirror.concurrency, running = sums.key_running, places = sums.key_lent.places,
      rates = {
        rate('requests', mirror.rpm, buckets[3], 'b:requests:' .. key, sums.key_lent.requests),
        rate('tokens', mirror.tpm, buckets[4], 'b:tokens:' .. key, sums.key_lent.tokens),
      },
    },
    {
      scope = 'account', concurrency = limits[3], running = sums.running, places = sums.lent.places,
      rates = {
        rate('requests', limits[1], buckets[1], 'b:requests', sums.lent.requests),
        rate('tokens', limits[2], buckets[2], 'b:tokens', sums.lent.tokens),
      },
    },
  }
end
-- Returns the number of free places and the limit; nil if there is no limit.
local function places_left(pace)
  local limit = tonumber(pace.concurrency or '')
  return limit and math.max(0, limit - total(pace.running, '', 0) - pace.places), limit
end
