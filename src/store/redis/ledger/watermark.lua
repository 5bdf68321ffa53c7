-- ARGV: now, generation, node. -> watermark
local values, fault = fields('wm:' .. ARGV[3])
if fault then
  return {fault}
end
return {'ok', values[3] or '0'}
