-- Renews the holds of a node on an account. ARGV: now, generation, node.
if living(true)[ARGV[3]] then
  local HELD = held_by(ARGV[3])
  redis.call('HSET', HELD, 'until', text(now + LEASE_MS))
  redis.call('PEXPIRE', HELD, HELD_KEPT_MS)
end
return {'ok'}
