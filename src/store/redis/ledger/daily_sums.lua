-- The daily sums, as src/domain/ledger/daily_sums.rs has them: `:sums:<day>`, a hash from a subject (`a`, `k:<key>`,
-- `t:<tag>`, `o`) to its sums of each model, `;model=number|number|...|` again and again, nothing for a zero. A model's name
-- is percent-encoded. `tags` is how many tags the day has, `trimmed` how many of its rows have left for the log's home.
local TAGS_A_DAY_MAX = 100
local TAGS = 'tags'
-- The numbers of a list, each behind another; more than the others has the list of a later weir.
local function numbers(list)
  local all = {}
  for one in string.gmatch(list, '([^|]*)|') do
    all[#all + 1] = tonumber(one) or 0
  end
  return all
end
-- Sums by model with one model's numbers added.
local function with_added(models, model, more)
  local _, name_ends = string.find(models, ';' .. model .. '=', 1, true)
  if not name_ends then
    return models .. ';' .. model .. '=' .. more
  end
  local next_one = string.find(models, ';', name_ends, true) or #models + 1
  local sums, added = numbers(string.sub(models, name_ends + 1, next_one - 1)), numbers(more)
  for i = 1, math.max(#sums, #added) do
    local sum = bounded((sums[i] or 0) + (added[i] or 0))
    sums[i] = sum == 0 and '' or text(sum)
  end
  return string.sub(models, 1, name_ends) .. table.concat(sums, '|') .. '|' .. string.sub(models, next_one)
end
-- Adds a row to the sums of its day: its key, its model, what it counts, and its tags with a space between them.
local function sum_row(day, key, model, counts, tags)
  local subjects, tagged = {'a', 'k:' .. key}, {}
  for tag in string.gmatch(tags, '%S+') do
    tagged[#tagged + 1] = 't:' .. tag
  end
  if #tagged > 0 then
    day.load('a', 'k:' .. key, TAGS, 'o', unpack(tagged))
  else
    day.load('a', 'k:' .. key)
  end
  local others = false
  for _, subject in ipairs(tagged) do
    if day.get(subject) ~= '' then
      subjects[#subjects + 1] = subject
    elseif (tonumber(day.get(TAGS)) or 0) < TAGS_A_DAY_MAX then
      subjects[#subjects + 1] = subject
      day.add(TAGS, 1)
    else
      others = true
    end
  end
  if others then
    subjects[#subjects + 1] = 'o'
  end
  for _, subject in ipairs(subjects) do
    day.set(subject, with_added(day.get(subject), model, counts))
  end
end
