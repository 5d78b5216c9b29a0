-- For how long any client has seen the server as it is now.
--
-- KEYS: witness
-- ARGV: what it is: its run, and its account of flushes and copies
-- Answers: how long (ms)
local time = redis.call('TIME')
local now = math.floor((time[1] * 1000000 + time[2]) / 1000)
local since, what = string.match(redis.call('GET', KEYS[1]) or '', '^(%d+) (.*)$')
if what ~= ARGV[1] then
  redis.call('SET', KEYS[1], string.format('%.0f ', now) .. ARGV[1])
  return 0
end
return math.max(now - since, 0)
