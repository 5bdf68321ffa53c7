-- Ends the restore of an account: it exists from now on. ARGV: now, generation, the generation it belongs to.
local balance = redis.call('HGET', STATE, 'restored')
if balance then
  redis.call('HSET', STATE, 'balance', balance, 'gen', ARGV[3])
  redis.call('HDEL', STATE, 'restored')
end
return {'ok'}
