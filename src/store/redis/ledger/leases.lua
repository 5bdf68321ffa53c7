-- Leases in the opened hash of their holder. Places are slots of a concurrency limit.
local function add_to(held, field, more)
  if more ~= 0 and held.add(field, more) == 0 then
    held.set(field, '')
  end
end
local function lease_of(held, name)
  local amount, at, key = string.match(held.get('r:' .. name), '^(%d+)|(%-?%d+)|(.*)$')
  local running, turn, rest = string.match(held.get('t:' .. name), '^(%d+)|(%d+)(.*)$')
  if not amount or not turn then
    return nil
  end
  -- A lease that an earlier version of weir wrote does not have the further fields.
  local used_requests, used_tokens, requests, tokens, places = string.match(rest, '^|(%d+)|(%d+)|(%d+)|(%d+)|(%d+)$')
  return {
    amount = tonumber(amount), at = tonumber(at), key = key, running = tonumber(running), turn = tonumber(turn),
    used = {requests = number(used_requests), tokens = number(used_tokens)},
    given = {requests = number(requests), tokens = number(tokens)},
    places = number(places),
  }
end
-- Adds an amount to a lease. `names` are the names of the lease's four periods.
local function add_to_lease(held, name, lease, more, names)
  lease.amount = lease.amount + more
  held.set('r:' .. name, text(lease.amount) .. '|' .. text(lease.at) .. '|' .. lease.key)
  add_to(held, 'held', more)
  add_to(held, 'leased', more)
  add_to(held, 'l:' .. lease.key, more)
  for _, period in ipairs(names) do
    add_to(held, 'h:' .. lease.key .. ':' .. period, more)
  end
end
-- Returns the unused rates and places of a lease.
local function lent_by(lease)
  return {
    requests = lease.given.requests - lease.used.requests,
    tokens = lease.given.tokens - lease.used.tokens,
    places = math.max(0, lease.places - lease.running),
  }
end
-- Changes a lease as a call requests: its running requests, the call's number, its rates and places.
local function runs(held, name, lease, after)
  add_to(held, 'running', after.running - lease.running)
  add_to(held, 'n:' .. lease.key, after.running - lease.running)
  local before, lent = lent_by(lease), lent_by(after)
  for of, amount in pairs(lent) do
    add_to(held, 'lent_' .. of, amount - before[of])
    add_to(held, 'lent_' .. of .. ':' .. lease.key, amount - before[of])
  end
  lease.running, lease.turn = after.running, after.turn
  lease.used, lease.given, lease.places = after.used, after.given, after.places
  local told = {
    after.running, after.turn, after.used.requests, after.used.tokens, after.given.requests, after.given.tokens, after.places,
  }
  for i, figure in ipairs(told) do
    told[i] = text(figure)
  end
  held.set('t:' .. name, table.concat(told, '|'))
end
local function holds_nothing(held)
  return (tonumber(held.get('running')) or 0) == 0 and held.get('leases') == ''
end
