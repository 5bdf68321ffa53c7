-- What lasts of an account, of one moment, but for its rows: of those, how many each day has by now, and how many have left.
-- ARGV: now, generation. -> '', field, value; or 'operation', id, amount; or a period, key, amount; or 'log', day, rows; or
-- 'trimmed', day, rows that have left; again and again
-- Rows are kept for 180 days, counters for 7 days after a period of at most 31; clocks may be a little ahead.
local LOG_DAYS, COUNTED_DAYS, AHEAD_DAYS = 181, 45, 2
local _, fault = fields()
if fault then
  return {fault}
end
local reply = {'ok'}
local function tell(kind, name, value)
  reply[#reply + 1] = kind
  reply[#reply + 1] = name
  reply[#reply + 1] = value
end
local function tell_all(kind, hash)
  local values = redis.call('HGETALL', hash)
  for i = 1, #values, 2 do
    if kind ~= '' or string.sub(values[i], 1, 2) ~= 'b:' then
      tell(kind, values[i], values[i + 1])
    end
  end
end
tell_all('', STATE)
for _, one in ipairs(remembered()) do
  tell('operation', one.id, one.amount)
end
local today, told = day_of(now), {}
for day = today - COUNTED_DAYS, today + AHEAD_DAYS do
  for _, name in ipairs(names_of(periods(day * DAY_MS))) do
    if not told[name] then
      told[name] = true
      tell_all(name, BASE .. 'spent:' .. name)
    end
  end
end
for day = today - LOG_DAYS, today + AHEAD_DAYS do
  local rows = redis.call('LLEN', BASE .. 'log:' .. text(day))
  if rows > 0 then
    tell('log', text(day), text(rows))
  end
  local trimmed = redis.call('HGET', BASE .. 'sums:' .. text(day), 'trimmed')
  if trimmed then
    tell('trimmed', text(day), trimmed)
  end
end
return reply
