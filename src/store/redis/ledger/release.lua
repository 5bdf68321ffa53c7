-- Ends all holds of a node on an account. ARGV: now, generation, node.
here(held_by(ARGV[3]), NODES)
redis.call('DEL', held_by(ARGV[3]))
redis.call('SREM', NODES, ARGV[3])
return {'ok'}
