-- ARGV: generation, the form.
redis.call('HDEL', SESSION, 'form:' .. ARGV[2])
return {'ok', generation}
