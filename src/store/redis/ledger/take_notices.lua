-- Takes the notices that are due. ARGV: now, generation, the pause after the first time in milliseconds. Reply: the number of
-- dropped notices, the milliseconds until the next notice is due or '', then for each notice: its name, the value that was
-- reached, the limit, its time, how often it was taken.
local _, fault = fields()
if fault then
  return {fault}
end
local pause = tonumber(ARGV[3])
local kept = redis.call('HGETALL', NOTICES)
local due, next_due, lost = {}, nil, '0'
local function waits_until(time)
  next_due = next_due and math.min(next_due, time) or time
end
for i = 1, #kept, 2 do
  if kept[i] == LOST then
    lost = kept[i + 1]
  else
    local one = read_notice(kept[i + 1])
    one.name = kept[i]
    if one.due <= now then
      due[#due + 1] = one
    else
      waits_until(one.due)
    end
  end
end
table.sort(due, function(one, other)
  if one.at ~= other.at then
    return tonumber(one.at) < tonumber(other.at)
  end
  return one.name < other.name
end)
local reply, written = {'ok', lost, ''}, {}
for i, one in ipairs(due) do
  if i <= TAKEN_MAX then
    one.due = now + pause * 2 ^ math.min(one.tries, DOUBLINGS_MAX)
    one.tries = one.tries + 1
    written[#written + 1] = one.name
    written[#written + 1] = written_notice(one)
    for _, word in ipairs({one.name, one.reached, one.limit, one.at, text(one.tries)}) do
      reply[#reply + 1] = word
    end
  end
  waits_until(one.due)
end
if #written > 0 then
  redis.call('HSET', NOTICES, unpack(written))
end
if lost ~= '0' then
  redis.call('HDEL', NOTICES, LOST)
end
if next_due then
  reply[3] = text(math.max(0, next_due - now))
end
return reply
