-- Reads a key by its id. ARGV: generation, id. Reply: the key's record or '', its last use or '', its digest or ''.
return {
  'ok', generation,
  redis.call('HGET', RECORDS, ARGV[2]) or '',
  redis.call('HGET', USED, ARGV[2]) or '',
  redis.call('HGET', DIGESTS, ARGV[2]) or '',
}
