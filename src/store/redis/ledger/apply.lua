-- Applies a node's steps of an account. ARGV: now, generation, node, whether the account may be created, the number of the last
-- row in the node's journal or 0, then for each step: its number, its kind, its details.
--
-- Settlements of requests from leases may be sent as a batch: the first number, `together`, the number of settlements, their day,
-- the number of groups, the number of rows (of all, or 0 if rows are not kept), each group, each row.
--
-- Reply: the watermark; or 'each' if nothing has changed because the order of a batch may matter, so the steps must be sent
-- separately.
local may_create = ARGV[4] == '1'
local _, fault = fields()
if fault == 'lost' or (fault and not may_create) then
  return {fault}
end

-- The operations, which are read at the first step that has an id; `first` is the index of the oldest one that is still stored.
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

-- Adds a payment to the balance, and to the amounts paid in on the day and in the month of the latest payment
-- (src/domain/ledger/account/operations.rs), which are stored as 'day|amount|month|amount'. `at` is in seconds since the Unix
-- epoch.
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

-- Recalls all leases if an amount is taken from the balance.
local function recall_for(is_less)
  if is_less then
    state.add('recall', 1)
  end
end

-- The kinds of steps. Each function gets the index of its first argument.
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
}
local widths = {settle = 13, open = 3, add = 3}

local before = tonumber(state.get(MARK)) or 0
local watermark = before
local i = 6
while i <= #ARGV do
  local seq, what = tonumber(ARGV[i]), ARGV[i + 1]
  if seq > watermark + 1 then
    break
  end
  if what == 'together' then
    local many = tonumber(ARGV[i + 2])
    local last = seq + many - 1
    if seq == watermark + 1 then
      i, watermark = settle_together(i + 3), last
    elseif last <= watermark then
      i = i + 6 + tonumber(ARGV[i + 4]) * GROUP + tonumber(ARGV[i + 5])
    else
      i = nil
    end
    if not i then
      return {'each'}
    end
  else
    if seq == watermark + 1 then
      applying = seq
      changes[what](i + 2)
      watermark = seq
    end
    i = i + 2 + widths[what]
  end
end
if watermark == before then
  return {'ok', text(before)}
end

if i > #ARGV and ARGV[5] ~= '0' then
  state.set('sum:' .. node, ARGV[5])
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
for _, day in pairs(days) do
  if day then
    day.sums.write()
    redis.call('EXPIRE', day.name, day.kept)
    if #day.rows > 0 then
      redis.call('RPUSH', day.log, unpack(day.rows))
      redis.call('EXPIRE', day.log, day.kept)
    end
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
