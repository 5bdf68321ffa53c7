-- The waiting notices. `:notices` is a hash from a notice's name to reached value|limit|time of the request's admission|how often
-- it was taken|when it may be taken next. The field `lost` is the number of notices that were dropped because there was no room.
-- Names and rules are those of src/domain/ledger/account/notices.rs.
local NOTICES = BASE .. 'notices'
local LOST = 'lost'
local NOTICES_MAX = 256
local TAKEN_MAX = 8
local DOUBLINGS_MAX = 6
local PERCENTS = {50, 75, 80, 90, 95, 100}
-- Returns the given percentage of a quota, rounded down.
local function part_of(quota, percent)
  return math.floor(quota / 100) * percent + math.floor(quota % 100 * percent / 100)
end
local function read_notice(value)
  local reached, limit, at, tries, due = string.match(value, '^(%-?%d+)|(%-?%d+)|(%-?%d+)|(%d+)|(%-?%d+)$')
  return {reached = reached, limit = limit, at = at, tries = tonumber(tries), due = tonumber(due)}
end
local function written_notice(one)
  return one.reached .. '|' .. one.limit .. '|' .. one.at .. '|' .. text(one.tries) .. '|' .. text(one.due)
end
