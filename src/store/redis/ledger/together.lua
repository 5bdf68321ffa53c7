-- The token buckets that a batch of settlements corrects. Each has the level before the batch, the time of that level, and by how
-- much the settlements fill and empty the bucket.
local corrected
-- Corrects a bucket. Returns whether it stays within its bounds for every order of the settlements.
local function correct_together(name, limit, fewer, more, estimated_max, used_max)
  local bucket = state.get(name)
  if limit == '' or bucket == '' then
    return true
  end
  local most = math.min(tonumber(limit), RATE_MAX)
  local this = corrected[name]
  if not this then
    local level, at = read_bucket(bucket)
    this = {level = level, at = at, fewer = 0, more = 0}
    corrected[name] = this
  end
  this.fewer, this.more = this.fewer + fewer * UNIT, this.more + more * UNIT
  state.set(name, bucket_text(this.level + this.fewer - this.more, this.at))
  return estimated_max <= most and used_max <= 3 * most and this.level + this.fewer <= most * UNIT
    and this.level - this.more >= -most * UNIT
end

-- Returns whether this cost, with which the spending reaches `after`, makes the spending pass a threshold of a quota.
local function reaches(quota, after, cost)
  for _, percent in ipairs(PERCENTS) do
    local part = part_of(quota, percent)
    if after - cost < part and part <= after then
      return true
    end
  end
  return false
end

-- Settles a group of settlements. Returns whether their order does not matter.
local function settle_group(i, sums)
  local key, at, cost = ARGV[i], tonumber(ARGV[i + 1]), tonumber(ARGV[i + 2])
  local before = tonumber(state.get('balance')) or 0
  local balance = state.add('balance', -cost)
  state.add('spent', cost)
  draw(ARGV[i + 3], ARGV[i + 4], cost)
  local fewer, more, estimated_max, used_max =
    tonumber(ARGV[i + 5]), tonumber(ARGV[i + 6]), tonumber(ARGV[i + 7]), tonumber(ARGV[i + 8])
  local terms, mirror = {}, state.get('k:' .. key)
  if mirror ~= '' then
    mirrors[mirror] = mirrors[mirror] or read_mirror(mirror)
    terms = mirrors[mirror]
  end
  if not correct_together('b:tokens', state.get('tpm'), fewer, more, estimated_max, used_max)
    or not correct_together('b:tokens:' .. key, terms.tpm or '', fewer, more, estimated_max, used_max) then
    return false
  end
  if cost > 0 then
    local period = periods_at(at)
    for _, counter in ipairs(counters_at(period)) do
      local after = counter.spent.add(key, cost)
      if terms.quota and counter.name == period[terms.reset] and reaches(terms.quota, after, cost) then
        return false
      end
    end
    local low = tonumber(state.get('low_balance'))
    if low and before > bounded(low) and balance <= bounded(low) then
      return false
    end
  end
  if sums then
    sum_row(sums, key, ARGV[i + 9], ARGV[i + 10], ARGV[i + 11])
  end
  return true
end

-- Settles a batch whose day is the argument at index `i`. Returns the index of the first argument after the batch; nil if the
-- order may matter.
local GROUP = 12
local function settle_together(i)
  local day, groups, rows = day_at(ARGV[i]), tonumber(ARGV[i + 1]), tonumber(ARGV[i + 2])
  corrected = {}
  for group = 1, groups do
    if not settle_group(i + 3 + (group - 1) * GROUP, day and day.sums) then
      return nil
    end
  end
  local first = i + 3 + groups * GROUP
  if day then
    for row = first, first + rows - 1 do
      keep_row(day, ARGV[row])
    end
  end
  return first + rows
end
