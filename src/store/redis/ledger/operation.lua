-- Returns the amount of an operation. ARGV: now, generation, the operation's id. Reply: the amount that it added, or '' if it is
-- not stored.
local _, fault = fields()
if fault then
  return {fault}
end
for _, one in ipairs(remembered()) do
  if one.id == ARGV[3] then
    return {'ok', one.amount}
  end
end
return {'ok', ''}
