-- KEYS after those of the prelude: one per session. ARGV: generation, lifetime in seconds, who served each.
for i = 9, #KEYS do
  redis.call('SET', KEYS[i], ARGV[i - 6], 'EX', ARGV[2])
end
return {'ok', generation}
