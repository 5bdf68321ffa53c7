-- The beginning of most scripts about an account. All keys of the account have the hash tag of KEYS[1], and so one hash slot.
-- ARGV[1] is the time in milliseconds since the Unix epoch, or '' to use the server's own; ARGV[2] is the generation that
-- this node has read, or ''. The rules are those of src/domain/ledger/account.rs. Numbers in Lua are doubles. Therefore
-- numbers that are compared are within +-(2^53 - 1), sums are limited to that range, and results are strings.
--
-- Scripts do not roll back, so every check comes before the first write that has an effect. If Redis is out of memory, read-only
-- or has too few replicas, it refuses that write, and nothing has been written yet. A cluster's server that is handing over the
-- hash slot refuses the first command on a key that it does not have, whether the key has been moved or never existed. Therefore
-- a script first reads every key that it will write, or passes its name to `here`.
local MAX = 9007199254740991
local STATE = KEYS[1]
local BASE = string.sub(STATE, 1, -6)
local NODES = BASE .. 'nodes'
-- Formats a number without decimals. Adding 0 turns a negative zero into a plain one.
local function text(number)
  return string.format('%.0f', number + 0)
end
local function number(value)
  return tonumber(value or '0')
end
-- Raises an error, before anything is written, if one of these keys cannot be written on this server.
local function here(...)
  for _, name in ipairs({...}) do
    redis.call('EXISTS', name)
  end
end
local function bounded(amount)
  return math.max(-MAX, math.min(MAX, amount))
end
local now = tonumber(ARGV[1])
if not now then
  local time = redis.call('TIME')
  now = tonumber(time[1]) * 1000 + math.floor(tonumber(time[2]) / 1000)
end
-- Reads the balance, the generation, and the given fields of the account. Also returns the reason why they cannot be used, if
-- there is one. An existing account has a balance. An account of another generation was left by another installation.
local function fields(...)
  local values = redis.call('HMGET', STATE, 'balance', 'gen', ...)
  local generation = values[2] or ''
  if generation ~= '' and ARGV[2] ~= '' and generation ~= ARGV[2] then
    return values, 'lost'
  end
  return values, not values[1] and 'missing'
end
