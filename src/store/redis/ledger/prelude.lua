-- The beginning of every script about one account. All its keys have the hash tag of KEYS[1], and so one slot. ARGV[1] is the
-- time in milliseconds, or '' for the server's own; ARGV[2] the generation that this node has seen, or ''.
-- The rules are those of src/domain/ledger/account.rs. Numbers are doubles here: numbers that are compared stay within
-- +-(2^53 - 1), a sum beyond that is limited to it, and results are text.
--
-- Scripts do not roll back, so every check comes before the first write that counts; and a Redis that is out of memory,
-- read-only or short of replicas refuses that write, with nothing written yet. A cluster's server that is just handing over
-- the slot refuses the first command on a key that it does not have, whether the key has moved on or never existed: therefore
-- a script first reads every key that it is going to write, or names it in `here`.
local MAX = 9007199254740991
local STATE = KEYS[1]
local BASE = string.sub(STATE, 1, -6)
local NODES = BASE .. 'nodes'
-- The sum turns a negative zero into a plain one.
local function text(number)
  return string.format('%.0f', number + 0)
end
local function number(value)
  return tonumber(value or '0')
end
-- Raises an error, before anything is written, unless these keys may be written here.
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
-- The balance, the generation, and other fields of the account; then the reason not to use them, if any. An existing account
-- has a balance; one of another generation was left by another installation.
local function fields(...)
  local values = redis.call('HMGET', STATE, 'balance', 'gen', ...)
  local generation = values[2] or ''
  if generation ~= '' and ARGV[2] ~= '' and generation ~= ARGV[2] then
    return values, 'lost'
  end
  return values, not values[1] and 'missing'
end
