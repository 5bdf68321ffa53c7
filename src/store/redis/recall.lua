-- Reads which provider and credential serve states. KEYS after those of the prelude: one for each state. Reply: for each state
-- the provider and credential, or ''.
local answer = {'ok', generation}
for i = 9, #KEYS do
  answer[#answer + 1] = redis.call('GET', KEYS[i]) or ''
end
return answer
