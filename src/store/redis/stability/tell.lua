-- Stores shares of the stability record. KEYS after those of the prelude: the hour of each share. ARGV after the generation: for
-- each share its node, its watermark, when the hour's hash expires (in seconds since the Unix epoch), its number of models, and
-- for each model its name and counters. Watermarks are compared as texts, because Lua's numbers are doubles.
local FIELDS_MAX = 1000
-- Of two numbers without leading zeros, the one with more digits is greater.
local function is_greater(told, held)
  if not held or not string.find(held, '^[1-9]%d*$') then
    held = '0'
  end
  return #told > #held or (#told == #held and told > held)
end
local at = 2
for i = 9, #KEYS do
  local hour, node, watermark, ends = KEYS[i], ARGV[at], ARGV[at + 1], ARGV[at + 2]
  local first, last = at + 4, at + 3 + 2 * tonumber(ARGV[at + 3])
  at = last + 1
  if is_greater(watermark, redis.call('HGET', hour, node)) then
    local told, fields = {}, {node, watermark}
    for j = first, last, 2 do
      local field = node .. ':' .. ARGV[j]
      told[field] = true
      fields[#fields + 1] = field
      fields[#fields + 1] = ARGV[j + 1]
      if #fields >= FIELDS_MAX then
        redis.call('HSET', hour, unpack(fields))
        fields = {}
      end
    end
    if #fields > 0 then
      redis.call('HSET', hour, unpack(fields))
    end
    -- Removes fields of the node's previous share that this share does not have.
    for _, field in ipairs(redis.call('HKEYS', hour)) do
      if string.sub(field, 1, #node + 1) == node .. ':' and not told[field] then
        redis.call('HDEL', hour, field)
      end
    end
    redis.call('EXPIREAT', hour, ends)
  end
end
return {'ok', generation}
