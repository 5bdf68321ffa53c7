-- Returns daily sums. ARGV: now, generation, the first day, the last day, then a subject, or `k:` for all keys, or `t:` for all
-- tags and `o`, or '' for all subjects. Reply: a sequence of day, subject, the subject's sums by model.
local wanted = ARGV[5]
local of_all = wanted == '' or wanted == 'k:' or wanted == 't:'
local reply = {'ok'}
local function tell(day, subject, models)
  reply[#reply + 1] = day
  reply[#reply + 1] = subject
  reply[#reply + 1] = models
end
local _, fault = fields()
if fault then
  return {fault}
end
for number = tonumber(ARGV[3]), tonumber(ARGV[4]) do
  local day = text(number)
  local sums = BASE .. 'sums:' .. day
  if not of_all then
    local models = redis.call('HGET', sums, wanted)
    if models then
      tell(day, wanted, models)
    end
  else
    local all = redis.call('HGETALL', sums)
    for i = 1, #all, 2 do
      local is_wanted = string.sub(all[i], 1, #wanted) == wanted or wanted == 't:' and all[i] == 'o'
      if is_wanted and all[i] ~= 'tags' then
        tell(day, all[i], all[i + 1])
      end
    end
  end
end
return reply
