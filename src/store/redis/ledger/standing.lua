-- Returns the use of a key's quota in the period of a time: the spent amount as a number; then quota, spent amount and the end of
-- the period as texts. `of` contains the key's terms.
local function standing(of, key, at)
  if not of.quota then
    return nil, {'', '', ''}
  end
  local period = periods(at)
  local spent = number(redis.call('HGET', BASE .. 'spent:' .. period[of.reset], key))
  local ends = period[of.reset .. '_end']
  return spent, {text(of.quota), text(spent), ends and text(ends) or ''}
end
