-- KEYS after those of the prelude: the document of an access token with this digest, former texts. ARGV: generation, digest.
-- -> version, record or '', that document or ''
local id = redis.call('HGET', IDS, ARGV[2])
local record = ''
if id then
  record = redis.call('HGET', RECORDS, id)
  if not record then
    return {'corrupt', generation, 'a digest leads to ' .. id .. ', which has no record'}
  end
elseif redis.call('HLEN', IDS) ~= redis.call('HLEN', RECORDS) or redis.call('HLEN', IDS) ~= redis.call('ZCARD', ORDER) then
  -- Part of the data was evicted or deleted by hand. "Unknown" would turn valid keys away.
  return {'lost', generation}
end
if not id then
  -- A version of weir that does not know former texts may have removed it from the record.
  local replaced = redis.call('HGET', KEYS[10], ARGV[2])
  local kept = replaced and redis.call('HGET', RECORDS, replaced)
  if kept and former_of(kept) == ARGV[2] then
    record = kept
  end
end
local token = not id and redis.call('GET', KEYS[9]) or ''
return {'ok', generation, version(), record, token}
