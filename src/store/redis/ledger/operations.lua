-- The stored operations on the balance, as in src/domain/ledger/account/operations.rs. `:operations` is a list of amount|id,
-- oldest first.
local OPERATIONS_MAX = 1000
local OPERATIONS = BASE .. 'operations'
-- Returns all operations, each with its amount and id, in order.
local function remembered()
  local all = {}
  for _, entry in ipairs(redis.call('LRANGE', OPERATIONS, 0, -1)) do
    local amount, id = string.match(entry, '^(%-?%d+)|(.*)$')
    all[#all + 1] = {amount = amount, id = id}
  end
  return all
end
