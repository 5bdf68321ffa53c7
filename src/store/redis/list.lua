-- Lists keys by creation time. ARGV: generation, the id after which the list begins or '', maximum number of keys. Reply: for
-- each key its record, its last use or '', and its digest.
local from = 0
if ARGV[2] ~= '' then
  local rank = redis.call('ZRANK', ORDER, ARGV[2])
  if not rank then
    return {'not_found', generation}
  end
  from = rank + 1
end
local reply = {'ok', generation}
local limit = tonumber(ARGV[3])
if limit > 0 then
  for _, id in ipairs(redis.call('ZRANGE', ORDER, from, from + limit - 1)) do
    local record = redis.call('HGET', RECORDS, id)
    if not record then
      return {'corrupt', generation, id .. ' has a place in the order but no record'}
    end
    reply[#reply + 1] = record
    reply[#reply + 1] = redis.call('HGET', USED, id) or ''
    reply[#reply + 1] = redis.call('HGET', DIGESTS, id) or ''
  end
end
return reply
