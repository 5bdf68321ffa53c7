-- ARGV: generation, whose it is, its time without a visit and in all, in milliseconds.
if redis.call('EXISTS', SESSION) == 1 then
  redis.call('HSET', SESSION, 'who', ARGV[2])
  return {'ok', generation}
end
redis.call('HSET', SESSION, 'who', ARGV[2], 'idle', ARGV[3], 'ends', string.format('%.0f', now() + tonumber(ARGV[4])))
lasts(math.min(tonumber(ARGV[3]), tonumber(ARGV[4])))
return {'ok', generation}
