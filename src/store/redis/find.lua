-- ARGV: generation, digest. -> version, record or ''
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
return {'ok', generation, version(), record}
