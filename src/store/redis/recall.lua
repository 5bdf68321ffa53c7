-- KEYS after those of the prelude: one per name of state. -> who serves each, or ''
local answer = {'ok', generation}
for i = 9, #KEYS do
  answer[#answer + 1] = redis.call('GET', KEYS[i]) or ''
end
return answer
