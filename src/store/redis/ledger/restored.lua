-- All of the account has been put back: now it is there. ARGV: now, generation, the generation it belongs to.
local balance = redis.call('HGET', STATE, 'restored')
if balance then
  redis.call('HSET', STATE, 'balance', balance, 'gen', ARGV[3])
  redis.call('HDEL', STATE, 'restored')
end
return {'ok'}
