-- Records the last uses of keys. ARGV: generation, then for each key its id and the time in seconds since the Unix epoch. This is
-- not a change: version and feed stay the same.
for i = 2, #ARGV, 2 do
  if redis.call('HEXISTS', RECORDS, ARGV[i]) == 1 then
    local noted = redis.call('HGET', USED, ARGV[i])
    if not noted or tonumber(noted) < tonumber(ARGV[i + 1]) then
      redis.call('HSET', USED, ARGV[i], ARGV[i + 1])
    end
  end
end
return {'ok', generation}
