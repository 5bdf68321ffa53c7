-- ARGV: generation, id. -> record or '', last use or ''
return {
  'ok', generation,
  redis.call('HGET', RECORDS, ARGV[2]) or '',
  redis.call('HGET', USED, ARGV[2]) or '',
}
