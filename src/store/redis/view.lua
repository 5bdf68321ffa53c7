-- ARGV: generation, id. -> record or '', last use or '', digest or ''
return {
  'ok', generation,
  redis.call('HGET', RECORDS, ARGV[2]) or '',
  redis.call('HGET', USED, ARGV[2]) or '',
  redis.call('HGET', DIGESTS, ARGV[2]) or '',
}
