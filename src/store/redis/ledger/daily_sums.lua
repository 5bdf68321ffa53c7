-- The daily sums, as in src/domain/ledger/daily_sums.rs. `:sums:<day>` is a hash from a subject (`a`, `k:<key>`, `t:<tag>`,
-- `o`) to its sums for each model, a sequence of `;model=number|number|...|` in which a zero is an empty string. A model's
-- name is percent-encoded. The field `tags` is the number of tags of the day.
local TAGS_A_DAY_MAX = 100
local TAGS = 'tags'
-- The index of the sum of the rows' digests, and its modulus. The sum is exact, because a digest is less than the modulus.
local DIGEST, DIGESTS = 4, 2 ^ 48
-- Returns the numbers of a list in which each number is followed by `|`. A list that a later version of weir wrote may have
-- more numbers.
local function numbers(list)
  local all = {}
  for one in string.gmatch(list, '([^|]*)|') do
    all[#all + 1] = tonumber(one) or 0
  end
  return all
end
-- Returns the positions at which a model's numbers begin and end in the text with sums by model; nil if the model has none.
local function place_of(models, model)
  local _, name_ends = string.find(models, ';' .. model .. '=', 1, true)
  if not name_ends then
    return nil
  end
  return name_ends + 1, (string.find(models, ';', name_ends, true) or #models + 1) - 1
end
-- Returns the text with sums by model in which those of one model are replaced.
local function with_sums(models, model, sums)
  local list = {}
  for i, sum in ipairs(sums) do
    list[i] = sum == 0 and '|' or text(sum) .. '|'
  end
  local from, to = place_of(models, model)
  if not from then
    return models .. ';' .. model .. '=' .. table.concat(list)
  end
  return string.sub(models, 1, from - 1) .. table.concat(list) .. string.sub(models, to + 1)
end
-- Opens the sums of a day. A subject's sums are read when the first row is added to them, and written once, however many rows
-- there are.
local function opened_day(name)
  local day = opened(name)
  -- For each subject: its models in the order in which they were added, and the sums of each model.
  local open = {}
  local write = day.write
  -- Returns whether a subject has any sums.
  function day.has(subject)
    return open[subject] or day.get(subject) ~= ''
  end
  -- Adds a list of numbers to those of a model.
  function day.count(subject, model, added)
    local known = open[subject]
    if not known then
      known = {models = {}, sums = {}}
      open[subject] = known
    end
    local sums = known.sums[model]
    if not sums then
      local models = day.get(subject)
      local from, to = place_of(models, model)
      sums = from and numbers(string.sub(models, from, to)) or {}
      known.sums[model] = sums
      known.models[#known.models + 1] = model
    end
    for i = 1, #added do
      local sum = (sums[i] or 0) + added[i]
      sums[i] = i == DIGEST and sum % DIGESTS or bounded(sum)
    end
  end
  function day.write()
    for subject, known in pairs(open) do
      local models = day.get(subject)
      for _, model in ipairs(known.models) do
        models = with_sums(models, model, known.sums[model])
      end
      day.set(subject, models)
    end
    open = {}
    write()
  end
  return day
end
-- Adds a row to the sums of its day. The row is given by its key, its model, its numbers, and its tags separated by spaces.
local function sum_row(day, key, model, counts, tags)
  local added, of_key = numbers(counts), 'k:' .. key
  day.load('a', of_key)
  day.count('a', model, added)
  day.count(of_key, model, added)
  if tags == '' then
    return
  end
  local tagged = {}
  for tag in string.gmatch(tags, '%S+') do
    tagged[#tagged + 1] = 't:' .. tag
  end
  day.load(TAGS, 'o', unpack(tagged))
  local others = false
  for _, subject in ipairs(tagged) do
    if day.has(subject) then
      day.count(subject, model, added)
    elseif (tonumber(day.get(TAGS)) or 0) < TAGS_A_DAY_MAX then
      day.count(subject, model, added)
      day.add(TAGS, 1)
    else
      others = true
    end
  end
  if others then
    day.count('o', model, added)
  end
end
