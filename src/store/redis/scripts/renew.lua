-- Extends many locks: compares and extends, never creates. A key of a wrong type does not stop the others.
--
-- KEYS: locks
-- ARGV: for each lock its owner, then for each lock its ttl (ms)
-- Answers, one for each lock: 1 extended, 0 not ours, -1 not a lock
local count = #KEYS
local answers = {}
for i = 1, count do
  local holder = redis.pcall('GET', KEYS[i])
  if holder == ARGV[i] then
    answers[i] = redis.call('PEXPIRE', KEYS[i], ARGV[count + i])
  elseif type(holder) == 'table' then
    answers[i] = -1
  else
    answers[i] = 0
  end
end
return answers
