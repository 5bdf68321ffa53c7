-- Leases in the opened hash of their holder.
local function add_to(held, field, more)
  if more ~= 0 and held.add(field, more) == 0 then
    held.set(field, '')
  end
end
local function lease_of(held, name)
  local amount, at, key = string.match(held.get('r:' .. name), '^(%d+)|(%-?%d+)|(.*)$')
  local running, turn = string.match(held.get('t:' .. name), '^(%d+)|(%d+)$')
  if not amount or not turn then
    return nil
  end
  return {
    amount = tonumber(amount), at = tonumber(at), key = key, running = tonumber(running), turn = tonumber(turn),
  }
end
-- Adds to a lease. The names are those of its four periods.
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
-- So many run in a lease.
local function runs(held, name, lease, running, turn)
  add_to(held, 'running', running - lease.running)
  add_to(held, 'n:' .. lease.key, running - lease.running)
  lease.running, lease.turn = running, turn
  held.set('t:' .. name, text(running) .. '|' .. text(turn))
end
local function holds_nothing(held)
  return (tonumber(held.get('running')) or 0) == 0 and held.get('leases') == ''
end
