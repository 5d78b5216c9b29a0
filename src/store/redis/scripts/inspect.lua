-- Who holds: for each lock false if it is free, else its ttl (ms), and token and label if the grant was ours.
--
-- KEYS: lock, counter, lock, counter, ...
local answers = {}
for i = 1, #KEYS, 2 do
  local holder = redis.pcall('GET', KEYS[i])
  local answer = false
  if type(holder) == 'table' then
    answer = {'foreign'}
  elseif holder then
    answer = {'held', redis.call('PTTL', KEYS[i])}
    local counter = redis.pcall('GET', KEYS[i + 1])
    if type(counter) == 'string' then
      local number, owner, label = string.match(counter, '^(%d+) (%x+) (.*)$')
      if owner == holder then
        answer[3] = tonumber(number)
        answer[4] = label
      end
    end
  end
  answers[(i + 1) / 2] = answer
end
return answers
