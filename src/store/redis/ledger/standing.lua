-- The use of a key's quota, in the period of a time: the amount spent, then quota, amount spent and the period's end as text.
-- `of` has the key's terms.
local function standing(of, key, at)
  if not of.quota then
    return nil, {'', '', ''}
  end
  local period = periods(at)
  local spent = number(redis.call('HGET', BASE .. 'spent:' .. period[of.reset], key))
  local ends = period[of.reset .. '_end']
  return spent, {text(of.quota), text(spent), ends and text(ends) or ''}
end
