-- Finds a key or an access token by its digest. KEYS after those of the prelude: the document of an access token with this
-- digest, the digests of former secrets. ARGV: generation, digest. Reply: version, the key's record or '', the token's document
-- or ''.
local id = redis.call('HGET', IDS, ARGV[2])
local record = ''
if id then
  record = redis.call('HGET', RECORDS, id)
  if not record then
    return {'corrupt', generation, 'a digest leads to ' .. id .. ', which has no record'}
  end
elseif redis.call('HLEN', IDS) ~= redis.call('HLEN', RECORDS) or redis.call('HLEN', IDS) ~= redis.call('ZCARD', ORDER) then
  -- Part of the data was evicted or deleted by hand. The reply "unknown" would cause valid keys to be refused.
  return {'lost', generation}
end
if not id then
  -- A version of weir without former secrets may have removed the former secret from the record.
  local replaced = redis.call('HGET', KEYS[10], ARGV[2])
  local kept = replaced and redis.call('HGET', RECORDS, replaced)
  if kept and former_of(kept) == ARGV[2] then
    record = kept
  end
end
local token = not id and redis.call('GET', KEYS[9]) or ''
return {'ok', generation, version(), record, token}
