-- Stores which provider and credential serve states. KEYS after those of the prelude: one for each state. ARGV: generation,
-- lifetime in seconds, then for each state the provider and credential.
for i = 9, #KEYS do
  redis.call('SET', KEYS[i], ARGV[i - 6], 'EX', ARGV[2])
end
return {'ok', generation}
