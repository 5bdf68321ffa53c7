-- ARGV: now, generation, node.
redis.call('DEL', held_by(ARGV[3]))
redis.call('SREM', NODES, ARGV[3])
return {'ok'}
