-- Holds. `:held:<node>` has `until`, the end of the node's lease; `held` and `running`, its sums; for each key `n:<key>`, the
-- number of its running requests, and `h:<key>:<period>`, the amount held by requests admitted in that period; and for each
-- request `r:<request>` = amount|time of admission|key. The hash is removed when the last hold ends. A node whose lease has
-- expired holds nothing; what is left of it is dropped by the next script that finds it, or expires.
--
-- A lease of budget is a hold too, with `t:<its name>` = running requests|number of the last call about it|requests and
-- tokens used|requests and tokens given|places. `leased` and `l:<key>` are the amounts in leases, in all and for each key;
-- `lent_requests`, `lent_tokens` and `lent_places`, also followed by `:<key>`, are their unused rates and places. `i:<key>`
-- is the highest number of a lease that was asked about; with one, `leases` is 1, and the hash stays as long as its node is
-- heard from.
local LEASE_MS = 30000
-- Much longer than a lease: `until` decides.
local HELD_KEPT_MS = 3600000
local function held_by(node)
  return BASE .. 'held:' .. node
end
-- The nodes whose leases have not expired, as a set. If something may change, the others are dropped.
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
-- The amounts that nodes hold, in all and for a key in a period, and the number of running requests of each node.
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
-- The number of running requests, without those of the node `asking` that have ended.
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
-- The hold of a request, if its node's lease has not expired.
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
-- Places a hold, or enlarges an existing one, and renews the lease. `names` are those of the hold's four periods.
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
