-- Returns the last step of a node that was applied. ARGV: now, generation, node. Reply: the watermark.
local values, fault = fields('wm:' .. ARGV[3])
if fault then
  return {fault}
end
return {'ok', values[3] or '0'}
