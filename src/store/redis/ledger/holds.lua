-- Holds. The hash `:held:<node>` contains: `until`, when the node's holds expire; `held` and `running`, the node's sums; for each
-- key `n:<key>`, the number of its running requests, and `h:<key>:<period>`, the amount held by requests admitted in that period;
-- and for each request `r:<request>` = amount|time of admission|key. The hash is removed when the last hold ends. A node whose
-- `until` has passed holds nothing; the rest of its hash is removed by the next script that finds it, or expires.
--
-- A lease of budget is a hold too, with `t:<its name>` = running requests|number of the last call about it|requests and
-- tokens used|requests and tokens given|places. Places are slots of a concurrency limit. `leased` and `l:<key>` are the
-- amounts in leases, in total and for each key; `lent_requests`, `lent_tokens` and `lent_places`, also followed by `:<key>`,
-- are the unused rates and places of leases. `i:<key>` is the highest number of a lease for which there was a call. If there
-- is such a field, `leases` is 1, and the hash exists as long as its node renews it.
local LEASE_MS = 30000
-- The time in milliseconds for which the hash exists without a renewal. The holds expire much earlier, at the time in
-- `until`.
local HELD_KEPT_MS = 3600000
local function held_by(node)
  return BASE .. 'held:' .. node
end
-- Returns the nodes whose holds have not expired, as a set. If `may_drop` is true, the hashes of the others are removed.
local function living(may_drop)
  local alive = {}
  for _, node in ipairs(redis.call('SMEMBERS', NODES)) do
    local lease = redis.call('HGET', held_by(node), 'until')
    if lease and tonumber(lease) > now then
      alive[node] = true
    elseif may_drop then
      redis.call('DEL', held_by(node))
      redis.call('SREM', NODES, node)
    end
  end
  return alive
end
-- Returns the amounts that nodes hold, in total and for a key in a period, and the number of running requests of each node.
local function sums_of(alive, key, period)
  local sums = {
    held = 0, running = {}, key_held = 0, key_running = {}, leased = 0, key_leased = 0,
    lent = {requests = 0, tokens = 0, places = 0}, key_lent = {requests = 0, tokens = 0, places = 0},
  }
  for node in pairs(alive) do
    local wanted = {
      'held', 'running', 'h:' .. key .. ':' .. period, 'n:' .. key, 'leased', 'l:' .. key, 'lent_requests', 'lent_tokens',
      'lent_places', 'lent_requests:' .. key, 'lent_tokens:' .. key, 'lent_places:' .. key,
    }
    local values = redis.call('HMGET', held_by(node), unpack(wanted))
    sums.held = sums.held + number(values[1])
    sums.running[node] = number(values[2])
    sums.key_held = sums.key_held + number(values[3])
    sums.key_running[node] = number(values[4])
    sums.leased = sums.leased + number(values[5])
    sums.key_leased = sums.key_leased + number(values[6])
    for i, of in ipairs({'requests', 'tokens', 'places'}) do
      sums.lent[of] = sums.lent[of] + number(values[6 + i])
      sums.key_lent[of] = sums.key_lent[of] + number(values[9 + i])
    end
  end
  return sums
end
-- Returns the total number of running requests, minus `ended` requests of the node `asking`, which have already ended.
local function total(running, asking, ended)
  local sum = 0
  for node, count in pairs(running) do
    if node == asking then
      count = math.max(0, count - ended)
    end
    sum = sum + count
  end
  return sum
end
-- Returns the hold of a request, if its node's holds have not expired.
local function hold_of(alive, node, request)
  local kept = alive[node] and redis.call('HGET', held_by(node), 'r:' .. request)
  if not kept then
    return nil
  end
  local amount, at, key = string.match(kept, '^(%d+)|(%-?%d+)|(.*)$')
  return {amount = tonumber(amount), at = tonumber(at), key = key}
end
local function is_lease(name)
  return string.sub(name, 1, 6) == 'lease-'
end
-- Places a hold, or enlarges an existing one by `more`, and renews the node's holds. `names` are the names of the hold's four
-- periods.
local function hold(node, request, held, more, names, is_new)
  local HELD = held_by(node)
  local wanted = {'held', 'running', 'n:' .. held.key}
  for _, name in ipairs(names) do
    wanted[#wanted + 1] = 'h:' .. held.key .. ':' .. name
  end
  if is_lease(request) then
    wanted[#wanted + 1] = 'leased'
    wanted[#wanted + 1] = 'l:' .. held.key
  end
  local values = redis.call('HMGET', HELD, unpack(wanted))
  local added = is_new and 1 or 0
  local written = {
    'until', text(now + LEASE_MS),
    'held', text(number(values[1]) + more),
    'running', text(number(values[2]) + added),
    wanted[3], text(number(values[3]) + added),
    'r:' .. request, text(held.amount) .. '|' .. text(held.at) .. '|' .. held.key,
  }
  if more > 0 then
    for i = 4, #wanted do
      written[#written + 1] = wanted[i]
      written[#written + 1] = text(number(values[i]) + more)
    end
  end
  redis.call('HSET', HELD, unpack(written))
  redis.call('PEXPIRE', HELD, HELD_KEPT_MS)
end
