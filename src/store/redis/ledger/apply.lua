-- ARGV: now, generation, node, whether the account may be made, then for each step: its number, what it is, what that needs.
-- -> watermark
local RETENTION_DAYS = 180
local COUNTERS_KEPT_DAYS = 7
local DAY_S = 86400
-- What is dated far ahead is kept for as long as this, some 30 years: Redis takes no time of any length.
local KEPT_MAX_S = 1000000000
local node, may_create = ARGV[3], ARGV[4] == '1'
local MARK = 'wm:' .. node
local _, fault = fields()
if fault == 'lost' or (fault and not may_create) then
  return {fault}
end

-- Steps of one time are mostly of one day and of few keys.
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
-- Counters and daily sums by the names of their keys, the logs of days, and for how many seconds each is kept.
local counters, logs, days, kept = {}, {}, {}, {}
local function kept_until(second)
  return math.min(KEPT_MAX_S, second - now_s)
end

-- The counters of a time's periods, but for those that would be gone at once: each with the name of its period.
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

-- The log of a day and its sums; nil when they would be gone at once.
local function log_of(day)
  if logs[day] == nil then
    local log, sums = BASE .. 'log:' .. day, BASE .. 'sums:' .. day
    kept[log] = kept_until((tonumber(day) + RETENTION_DAYS + 1) * DAY_S)
    kept[sums] = kept[log]
    logs[day] = false
    if kept[log] > 0 then
      here(log)
      days[sums] = opened_day(sums)
      logs[day] = {name = log, rows = {}, sums = days[sums]}
    end
  end
  return logs[day] or nil
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

-- What is to be taken from leases, by holder and lease: each is changed once, however many rows there are.
local drawn = {}
local function draw(holder, name, cost)
  drawn[holder] = drawn[holder] or {}
  drawn[holder][name] = (drawn[holder][name] or 0) + cost
end

-- Takes up to that much from each lease, if there is one.
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

-- What waits to be told, read when the first notice comes; `waiting` is how many.
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

-- Notes the parts of a key's quota that its spending in a period has come to, `after` with this cost.
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

local function settle(request, key, at, estimated, used, cost, holder, lease, day, row, model, counts, tags)
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
  local log = row ~= '' and log_of(day)
  if log then
    log.rows[#log.rows + 1] = row
    sum_row(log.sums, key, model, counts, tags)
  end
end

-- The operations, read when the first step that has an id comes; `first` is the oldest that is remembered still.
local operations, amounts, first, news
local function is_new(id, amount)
  if id == '' then
    return true
  end
  if not operations then
    operations, amounts, first, news = remembered(), {}, 1, {}
    for _, one in ipairs(operations) do
      amounts[one.id] = one.amount
    end
  end
  if amounts[id] then
    return false
  end
  amounts[id] = text(bounded(amount))
  operations[#operations + 1] = {amount = amounts[id], id = id}
  news[#news + 1] = amounts[id] .. '|' .. id
  if #operations - first + 1 > OPERATIONS_MAX then
    amounts[operations[first].id] = nil
    first = first + 1
  end
  return true
end

-- Adds a payment to the balance, and to what was paid in on the day and in the month of the latest one (src/domain/ledger/
-- account/paid_in.rs): 'day|amount|month|amount'. `at` is in seconds.
local PAID_END_S = 200000000000
local function later(known, paid, period, amount)
  if period < known then
    return known, paid
  end
  return period, bounded((period == known and paid or 0) + bounded(amount))
end
local function pay(amount, at)
  state.add('balance', amount)
  if at < 1 or at >= PAID_END_S then
    return
  end
  local day, of_day, month, of_month = string.match(state.get('paid'), '^(%-?%d+)|(%-?%d+)|(%-?%d+)|(%-?%d+)$')
  day, of_day = later(number(day), number(of_day), day_of(at * 1000), amount)
  month, of_month = later(number(month), number(of_month), month_of(at * 1000), amount)
  state.set('paid', text(day) .. '|' .. text(of_day) .. '|' .. text(month) .. '|' .. text(of_month))
end

-- Whether all leases are to come back.
local function recall_for(is_less)
  if is_less then
    state.add('recall', 1)
  end
end

-- Each takes where its arguments begin.
local changes = {
  settle = function(i)
    settle(
      ARGV[i], ARGV[i + 1], tonumber(ARGV[i + 2]), tonumber(ARGV[i + 3]), tonumber(ARGV[i + 4]), tonumber(ARGV[i + 5]),
      ARGV[i + 6], ARGV[i + 7], ARGV[i + 8], ARGV[i + 9], ARGV[i + 10], ARGV[i + 11], ARGV[i + 12]
    )
  end,
  open = function(i)
    if (tonumber(state.get('created')) or 0) == 0 then
      state.set('created', ARGV[i + 1])
    end
    recall_for(tonumber(ARGV[i]) < 0)
    if is_new(ARGV[i + 2], tonumber(ARGV[i])) then
      pay(tonumber(ARGV[i]), tonumber(ARGV[i + 1]))
    end
  end,
  add = function(i)
    recall_for(tonumber(ARGV[i]) < 0)
    if is_new(ARGV[i + 2], tonumber(ARGV[i])) then
      pay(tonumber(ARGV[i]), tonumber(ARGV[i + 1]))
    end
  end,
  suspend = function()
    recall_for(true)
    state.set('suspended', '1')
  end,
  resume = function()
    state.set('suspended', '')
  end,
  terms = function(i)
    recall_for(true)
    state.set('low_balance', ARGV[i])
    state.set('rpm', ARGV[i + 1])
    state.set('tpm', ARGV[i + 2])
    state.set('concurrency', ARGV[i + 3])
    state.set('provider_state', ARGV[i + 4])
    state.set('notify', ARGV[i + 5])
  end,
}
local widths = {settle = 13, open = 3, add = 3, suspend = 0, resume = 0, terms = 6}

local before = tonumber(state.get(MARK)) or 0
local watermark = before
local i = 5
while i <= #ARGV do
  local seq, what = tonumber(ARGV[i]), ARGV[i + 1]
  if seq > watermark + 1 then
    break
  end
  if seq == watermark + 1 then
    applying = seq
    changes[what](i + 2)
    watermark = seq
  end
  i = i + 2 + widths[what]
end
if watermark == before then
  return {'ok', text(before)}
end

draw_all()
local is_empty = held.changed.running and holds_nothing(held)
if is_empty then
  here(NODES)
end
state.set(MARK, watermark)
state.add('balance', 0)
if state.get('gen') == '' then
  state.set('gen', ARGV[2])
end
state.write()
if news and #news > 0 then
  redis.call('RPUSH', OPERATIONS, unpack(news))
  redis.call('LTRIM', OPERATIONS, -OPERATIONS_MAX, -1)
end
if notices then
  notices.write()
end
for name, counter in pairs(counters) do
  counter.write()
  if kept[name] then
    redis.call('EXPIRE', name, text(kept[name]))
  end
end
for name, day in pairs(days) do
  day.write()
  redis.call('EXPIRE', name, text(kept[name]))
end
for _, log in pairs(logs) do
  if log then
    redis.call('RPUSH', log.name, unpack(log.rows))
    redis.call('EXPIRE', log.name, text(kept[log.name]))
  end
end
for name, opened_hash in pairs(holders) do
  if name == node and is_empty then
    redis.call('DEL', held_by(node))
    redis.call('SREM', NODES, node)
  else
    opened_hash.write()
  end
end
return {'ok', text(watermark)}
