-- Ends the restore of an account, which exists from now on. ARGV: now, generation, the generation to which the account belongs.
local balance = redis.call('HGET', STATE, 'restored')
if balance then
  redis.call('HSET', STATE, 'balance', balance, 'gen', ARGV[3])
  redis.call('HDEL', STATE, 'restored')
end
return {'ok'}
