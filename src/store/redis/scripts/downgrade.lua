-- Makes the hold of a writer that of the first reader, in one step: its owner, its token and its time stay. The readers at the
-- head of the queue are next.
--
-- KEYS: lock, readers, grants
-- ARGV: owner, token, label, channel, the beginning of the names of the other keys of the lock, the time of a handover (ms)
-- Answers: what is left of the hold (ms); 0 not ours
local lock, readers, grants, owner = KEYS[1], KEYS[2], KEYS[3], ARGV[1]
local now = server_millis()
-- A key of a wrong type ends the script here, before the first write.
local holder = redis.call('GET', lock)
local ends = redis.call('ZSCORE', readers, owner)
local is_granted = redis.call('HEXISTS', grants, owner) == 1

if holder == READERS and ends and is_granted then
  -- It was done before.
  return math.max(tonumber(ends) - now, 0)
end
if not holder or string.sub(holder, 1, 32) ~= owner then
  return 0
end
local left = redis.call('PTTL', lock)
if left <= 0 then
  return 0
end
redis.call('DEL', readers, grants)
redis.call('ZADD', readers, now + left, owner)
-- Since when it holds, by the value of the writer.
redis.call('HSET', grants, owner, ARGV[2] .. ' ' .. ARGV[3] .. (string.match(holder, ' @%d+$') or ''))
redis.call('PEXPIRE', readers, left)
redis.call('PEXPIRE', grants, left)
redis.call('SET', lock, READERS, 'XX', 'KEEPTTL')
pass_on(keys_of(lock, ARGV[5]), true, ARGV[6], ARGV[4])
-- After that: those that waited for it join it, however long the key was not free.
redis.call('HSET', grants, 'since', string.format('%.0f', since_of(holder) or now))
return left
