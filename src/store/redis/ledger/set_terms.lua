-- Replaces an account's record, if it is still the one from which the new one was derived. ARGV: now, generation, whether the
-- account may be created, the old record, the new record, each in the order of RECORD. Reply: 'ok' or 'changed'.
local RECORD = {'revision', 'suspended', 'low_balance', 'rpm', 'tpm', 'concurrency', 'provider_state', 'notify'}
local FROM = 4
local TO = FROM + #RECORD
local _, fault = fields()
if fault == 'lost' or (fault and ARGV[3] ~= '1') then
  return {fault}
end
local state = opened(STATE)
state.load('balance', 'gen', 'recall', unpack(RECORD))
local function is_record(first)
  for i, field in ipairs(RECORD) do
    if state.get(field) ~= ARGV[first + i - 1] then
      return false
    end
  end
  return true
end
if is_record(TO) then
  return {'ok'}
end
if not is_record(FROM) then
  return {'changed'}
end
for i, field in ipairs(RECORD) do
  state.set(field, ARGV[TO + i - 1])
end
state.add('recall', 1)
state.add('balance', 0)
if state.get('gen') == '' then
  state.set('gen', ARGV[2])
end
state.write()
return {'ok'}
