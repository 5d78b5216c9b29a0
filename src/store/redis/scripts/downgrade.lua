-- Makes the hold of a writer that of the first reader, in one step: its owner, its token and its time stay.
--
-- KEYS: lock, readers, grants
-- ARGV: owner, token, label, channel
-- Answers: what is left of the hold (ms); 0 not ours
local READERS = 'leasehold:readers'
local lock, readers, grants, owner = KEYS[1], KEYS[2], KEYS[3], ARGV[1]
local time = redis.call('TIME')
local now = math.floor((time[1] * 1000000 + time[2]) / 1000)
-- A key of a wrong type ends the script here, before the first write.
local holder = redis.call('GET', lock)
local ends = redis.call('ZSCORE', readers, owner)
redis.call('HLEN', grants)

if holder == READERS and ends then
  -- It was done before.
  return math.max(tonumber(ends) - now, 0)
end
if holder ~= owner then
  return 0
end
local left = redis.call('PTTL', lock)
if left <= 0 then
  return 0
end
redis.call('DEL', readers, grants)
redis.call('ZADD', readers, now + left, owner)
redis.call('HSET', grants, owner, ARGV[2] .. ' ' .. ARGV[3])
redis.call('PEXPIRE', readers, left)
redis.call('PEXPIRE', grants, left)
redis.call('SET', lock, READERS, 'XX', 'KEEPTTL')
-- A wake-up is a hint, so a user that may not publish does not fail after the write.
redis.pcall('PUBLISH', ARGV[4], '')
return left
