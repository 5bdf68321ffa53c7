-- Restores parts of an account, as `kept.lua` returns them. The balance is first stored under another name, so that the account
-- does not exist until it is complete. ARGV: now, generation, then a sequence of '', field, value; or 'operation', id, amount; or
-- a period, key, amount.
local COUNTERS_KEPT_S = 45 * 86400
for i = 3, #ARGV, 3 do
  local period = ARGV[i]
  if period ~= '' then
    here(period == 'operation' and OPERATIONS or BASE .. 'spent:' .. period)
  end
end
for i = 3, #ARGV, 3 do
  local period, name, value = ARGV[i], ARGV[i + 1], ARGV[i + 2]
  if period == '' then
    redis.call('HSET', STATE, name == 'balance' and 'restored' or name, value)
  elseif period == 'operation' then
    redis.call('RPUSH', OPERATIONS, value .. '|' .. name)
  else
    redis.call('HSET', BASE .. 'spent:' .. period, name, value)
    if period ~= 'all' then
      redis.call('EXPIRE', BASE .. 'spent:' .. period, COUNTERS_KEPT_S)
    end
  end
end
return {'ok'}
