-- Gives a store its generation, without which nodes do not accept it. Used without the prelude, which refuses if there is no
-- generation. KEYS: those of the prelude. ARGV: the new generation, then 'adopt' to accept existing keys, or ''. Reply: 'there'
-- if the store had a generation, 'data' if it has keys, or 'made'.
local there = redis.call('GET', KEYS[1])
if there then
  return {'ok', there, 'there'}
end
if ARGV[2] ~= 'adopt' then
  for i = 2, #KEYS do
    if redis.call('EXISTS', KEYS[i]) == 1 then
      return {'ok', '', 'data'}
    end
  end
end
redis.call('SET', KEYS[1], ARGV[1])
return {'ok', ARGV[1], 'made'}
