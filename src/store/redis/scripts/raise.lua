-- Makes a token that of a hold, if the hold is still there: its own token and the counter, neither of which is ever lowered.
--
-- KEYS: lock, tokens
-- ARGV: owner, token, counter, max skew (us)
-- Answers: raised | gone | ahead token now | slow: ask arm.lua
local ARMED = 1000000000000000
local owner, token = ARGV[1], tonumber(ARGV[2])
local time = redis.call('TIME')
local micros = time[1] * 1000000 + time[2]
local last = tonumber(redis.call('HGET', KEYS[2], ARGV[3]) or 0)
-- After a clock was set back, the counter is ahead of it, and goes on.
if token > math.max(last, micros) + ARGV[4] then
  return {'ahead', token, micros}
end
local holder = redis.call('GET', KEYS[1])
if not holder or string.sub(holder, 1, 32) ~= owner then
  return {'gone'}
end
local first, about = string.match(holder, '^%x+ (%d+) (.*)$')
if not first or last <= ARMED then
  return {'slow'}
end
local digits = string.format('%.0f', math.max(token, tonumber(first)))
if token > last then
  redis.call('HSET', KEYS[2], ARGV[3], digits)
end
redis.call('SET', KEYS[1], owner .. ' ' .. digits .. ' ' .. about, 'XX', 'KEEPTTL')
return {'raised'}
