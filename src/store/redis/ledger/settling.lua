-- Settlements, as `apply.lua` applies them. Everything that they change is read when it is needed, and written once at the end.
local RETENTION_DAYS = 180
local COUNTERS_KEPT_DAYS = 7
local DAY_S = 86400
-- The maximum time for which data is kept, in seconds: some 30 years. It limits data with a date far in the future, because
-- Redis does not accept arbitrary times.
local KEPT_MAX_S = 1000000000
local node = ARGV[3]
local MARK = 'wm:' .. node
-- Steps that are applied together mostly have the same day and few different keys.
local periods_by_day, mirrors = {}, {}
local function periods_at(ms)
  local day = day_of(ms)
  periods_by_day[day] = periods_by_day[day] or periods(ms)
  return periods_by_day[day]
end

local now_s = math.floor(now / 1000)
local state, held = opened(STATE), opened(held_by(node))
local holders = {[node] = held}
state.load('balance', 'spent', 'low_balance', 'tpm', 'b:tokens', MARK, 'gen')
-- Counters by the names of their Redis keys; for how many seconds each is kept; and the sums and rows of days.
local counters, kept, days = {}, {}, {}
local function kept_until(second)
  return math.min(KEPT_MAX_S, second - now_s)
end

-- Returns the counters of the periods of a time, each with the name of its period. Counters that would expire at once are
-- omitted.
local function counters_at(period)
  if period.counters then
    return period.counters
  end
  period.counters = {}
  local ends = {false, period.daily_end, period.weekly_end, period.monthly_end}
  for i, name in ipairs(names_of(period)) do
    local counter = BASE .. 'spent:' .. name
    kept[counter] = ends[i] and kept_until(ends[i] + COUNTERS_KEPT_DAYS * DAY_S)
    if not kept[counter] or kept[counter] > 0 then
      counters[counter] = counters[counter] or opened(counter)
      period.counters[#period.counters + 1] = {name = name, spent = counters[counter]}
    end
  end
  return period.counters
end

-- Returns the sums and rows of a day; nil if they would expire at once.
local function day_at(number)
  if days[number] == nil then
    local sums, kept_s = BASE .. 'sums:' .. number, kept_until((tonumber(number) + RETENTION_DAYS + 1) * DAY_S)
    days[number] = kept_s > 0 and {
      name = sums, sums = opened_day(sums), log = BASE .. 'log:' .. number, rows = {}, kept = text(kept_s),
    }
  end
  return days[number] or nil
end
-- Records a row, which is appended to its day at the end of the script.
local function keep_row(day, row)
  if #day.rows == 0 then
    here(day.log)
  end
  day.rows[#day.rows + 1] = row
end

local function end_hold(request)
  local field = 'r:' .. request
  local amount, at, key = string.match(held.get(field), '^(%d+)|(%-?%d+)|(.*)$')
  if not amount then
    return
  end
  held.set(field, '')
  held.add('held', -amount)
  held.add('running', -1)
  local function less(sum, by)
    if held.add(sum, -by) == 0 then
      held.set(sum, '')
    end
  end
  less('n:' .. key, 1)
  if tonumber(amount) > 0 then
    for _, name in ipairs(names_of(periods_at(tonumber(at)))) do
      less('h:' .. key .. ':' .. name, amount)
    end
  end
end

-- The amounts to take from leases, by holder and lease. Each lease is changed only once, however many rows there are.
local drawn = {}
local function draw(holder, name, cost)
  drawn[holder] = drawn[holder] or {}
  drawn[holder][name] = (drawn[holder][name] or 0) + cost
end

-- Takes the recorded amount from each lease that exists, at most the lease's own amount.
local function draw_all()
  for holder, leases in pairs(drawn) do
    holders[holder] = holders[holder] or opened(held_by(holder))
    for name, cost in pairs(leases) do
      local lease = lease_of(holders[holder], name)
      local taken = lease and math.min(cost, lease.amount) or 0
      if taken > 0 then
        add_to_lease(holders[holder], name, lease, -taken, names_of(periods_at(lease.at)))
      end
    end
  end
end

local function correct_tokens(name, limit, estimated, used)
  local bucket = state.get(name)
  if limit ~= '' and bucket ~= '' then
    state.set(name, correct(bucket, limit, estimated, used))
  end
end

-- The waiting notices, which are read when the first notice is added; `waiting` is their number.
local notices, waiting
local function note(name, reached, limit, at)
  if not notices then
    notices = opened(NOTICES)
    waiting = redis.call('HLEN', NOTICES) - (notices.get(LOST) ~= '' and 1 or 0)
  end
  if notices.get(name) ~= '' then
    return
  end
  if waiting >= NOTICES_MAX then
    notices.add(LOST, 1)
    return
  end
  waiting = waiting + 1
  notices.set(name, written_notice({reached = text(reached), limit = text(limit), at = text(at), tries = 0, due = 0}))
end

-- Adds notices for the thresholds of a key's quota that its spending in a period has reached; `after` includes this cost.
local function note_quota(key, quota, period, after, cost, at)
  for _, percent in ipairs(PERCENTS) do
    local part = part_of(quota, percent)
    if after - cost < part and part <= after then
      note('q:' .. text(percent) .. ':' .. period .. ':' .. text(quota) .. ':' .. key, after, quota, at)
    end
  end
end

-- The number of the step that is being applied.
local applying
local function note_balance(before, at)
  local low, balance = tonumber(state.get('low_balance')), tonumber(state.get('balance'))
  if low and before > bounded(low) and balance <= bounded(low) then
    note('b:' .. text(applying) .. ':' .. node, balance, bounded(low), at)
  end
end

-- Settles one request. `counts` is '' for a settlement without a row, and `row` is '' if rows are not kept.
local function settle(request, key, at, estimated, used, cost, holder, lease, day, model, counts, tags, row)
  local before = tonumber(state.get('balance')) or 0
  state.add('balance', -cost)
  state.add('spent', cost)
  if holder == '' then
    end_hold(request)
  else
    draw(holder, lease, cost)
  end
  correct_tokens('b:tokens', state.get('tpm'), estimated, used)
  local mirror = state.get('k:' .. key)
  if mirror ~= '' then
    mirrors[mirror] = mirrors[mirror] or read_mirror(mirror)
    correct_tokens('b:tokens:' .. key, mirrors[mirror].tpm, estimated, used)
  end
  if cost > 0 then
    local terms = mirror ~= '' and mirrors[mirror] or {}
    local period = periods_at(at)
    for _, counter in ipairs(counters_at(period)) do
      local after = counter.spent.add(key, cost)
      if terms.quota and counter.name == period[terms.reset] then
        note_quota(key, terms.quota, counter.name, after, cost, at)
      end
    end
    note_balance(before, at)
  end
  local of_day = counts ~= '' and day_at(day)
  if of_day then
    sum_row(of_day.sums, key, model, counts, tags)
    if row ~= '' then
      keep_row(of_day, row)
    end
  end
end
