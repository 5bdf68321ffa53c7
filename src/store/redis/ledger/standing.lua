-- How the key of a mirror stands with its quota, in the period of a time: what was spent of it, and quota, that and the period's
-- end as text.
local function standing(of, key, at)
  if not of.quota then
    return nil, {'', '', ''}
  end
  local period = periods(at)
  local spent = number(redis.call('HGET', BASE .. 'spent:' .. period[of.reset], key))
  local ends = period[of.reset .. '_end']
  return spent, {text(of.quota), text(spent), ends and text(ends) or ''}
end
