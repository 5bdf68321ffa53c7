-- The calendar in UTC, in whole numbers: the same as src/domain/ledger/period.rs. Days are counted from the Unix epoch.
-- Internally, a year begins in March, so that the leap day is the last day of a year.
local DAY_MS = 86400000
local floor = math.floor
local function day_of(ms)
  return floor(ms / DAY_MS)
end
local function civil(days)
  local z = days + 719468
  local era = floor(z / 146097)
  local doe = z - era * 146097
  local yoe = floor((doe - floor(doe / 1460) + floor(doe / 36524) - floor(doe / 146096)) / 365)
  local doy = doe - (365 * yoe + floor(yoe / 4) - floor(yoe / 100))
  local shifted = floor((5 * doy + 2) / 153)
  local day = doy - floor((153 * shifted + 2) / 5) + 1
  local month = shifted < 10 and shifted + 3 or shifted - 9
  local year = yoe + era * 400
  if month <= 2 then
    year = year + 1
  end
  return year, month, day
end
local function days_of(year, month, day)
  if month <= 2 then
    year = year - 1
  end
  local era = floor(year / 400)
  local yoe = year - era * 400
  local shifted = month > 2 and month - 3 or month + 9
  local doy = floor((153 * shifted + 2) / 5) + day - 1
  return era * 146097 + yoe * 365 + floor(yoe / 4) - floor(yoe / 100) + doy - 719468
end
-- Returns the number of months since the Unix epoch.
local function month_of(ms)
  local year, month = civil(day_of(ms))
  return (year - 1970) * 12 + month - 1
end
-- Returns the day of the week; 0 is Monday.
local function weekday(days)
  return (days + 3) % 7
end
-- Returns the names of the day, the week and the month of a moment, and when each of them ends, in seconds since the Unix epoch.
local function periods(ms)
  local days = day_of(ms)
  local year, month, day = civil(days)
  local monday = days - weekday(days)
  -- A week belongs to the year in which its Thursday is.
  local week_year = civil(monday + 3)
  local week = floor((monday + 3 - days_of(week_year, 1, 1)) / 7) + 1
  local next_month
  if month == 12 then
    next_month = days_of(year + 1, 1, 1)
  else
    next_month = days_of(year, month + 1, 1)
  end
  return {
    daily = string.format('d%04d%02d%02d', year, month, day),
    weekly = string.format('w%04dW%02d', week_year, week),
    monthly = string.format('m%04d%02d', year, month),
    none = 'all',
    daily_end = (days + 1) * 86400,
    weekly_end = (monday + 7) * 86400,
    monthly_end = next_month * 86400,
  }
end
local function names_of(period)
  return {period.none, period.daily, period.weekly, period.monthly}
end
