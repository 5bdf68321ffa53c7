-- Removes notices that were delivered. ARGV: now, generation, then the names of the notices.
local _, fault = fields()
if fault then
  return {fault}
end
local told = {}
for i = 3, #ARGV do
  told[#told + 1] = ARGV[i]
end
if #told > 0 then
  redis.call('HDEL', BASE .. 'notices', unpack(told))
end
return {'ok'}
