-- Returns the durable data of an account as of one moment, except its rows and the sums of past days. For these days, it returns
-- the number of rows of each day, and the account's own sums.
--
-- ARGV: now, generation. Reply: a sequence of '', field, value; or 'operation', id, amount; or a period, key, amount; or 'log',
-- day, rows; or 'over', day, sums by model; or 'sums:' and a day, subject, sums by model.
-- Rows are kept for 180 days, counters for 7 days after a period of at most 31 days. Clocks may be slightly ahead.
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
local function tell_all(kind, hash, but)
  local values = redis.call('HGETALL', hash)
  for i = 1, #values, 2 do
    if not but or not string.find(values[i], but) then
      tell(kind, values[i], values[i + 1])
    end
  end
end
tell_all('', STATE, '^b:')
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
for number = today - LOG_DAYS, today + AHEAD_DAYS do
  local day = text(number)
  local rows, sums = redis.call('LLEN', BASE .. 'log:' .. day), BASE .. 'sums:' .. day
  if rows > 0 then
    tell('log', day, text(rows))
  end
  -- Earlier days are past days, which receive only late rows.
  if number >= today - 1 then
    tell_all('sums:' .. day, sums, '^tags$')
  else
    local of_account = redis.call('HGET', sums, 'a')
    if of_account then
      tell('over', day, of_account)
    end
  end
end
return reply
