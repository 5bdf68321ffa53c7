-- ARGV: generation, the form, the most forms. -> what became of it
local field = 'form:' .. ARGV[2]
if redis.call('EXISTS', SESSION) == 0 then
  return {'ok', generation, 'ended'}
end
if redis.call('HEXISTS', SESSION, field) == 1 then
  return {'ok', generation, 'taken'}
end
-- The three others are no forms.
if redis.call('HLEN', SESSION) - 3 >= tonumber(ARGV[3]) then
  return {'ok', generation, 'full'}
end
redis.call('HSET', SESSION, field, '')
return {'ok', generation, 'new'}
