-- Makes the hold of a writer that of the first reader, in one step: owner, token and time stay.
-- Readers at the head of the line come in.
--
-- KEYS: lock, marker, token
-- ARGV: claim, mark
-- Answers: what is left of the hold (ms); 0 not ours
local lock, token, claim, mark = KEYS[1], KEYS[3], ARGV[1], ARGV[2]
--@line
local owner, holder = string.sub(claim, 1, 32), redis.call('GET', lock)
local left = 0
if holder == READERS then
  -- It was done before.
  left = (tonumber(redis.call('ZSCORE', readers, owner)) or now) - now
elseif holder and string.sub(holder, 1, 32) == owner then
  left = redis.call('PTTL', lock)
  forget_readers()
  may_fill()
  redis.call('SET', lock, READERS, 'KEEPTTL')
  redis.call('ZADD', readers, whole(now + left), owner)
  local number, about = string.match(holder, '^%x+ (%d+) %a(.*)$')
  redis.call('HSET', grants, owner, number .. ' r' .. about)
  bind(readers, lock, readers, grants)
  redis.call('SET', line, whole(now), 'NX', 'PX', 2 * READ_PART)
  if (now - left_at()) % READ_TURN >= READ_PART then
    -- Those that waited for it join it, however long the lock was not free.
    redis.call('SET', line, whole(now - READ_TURN), 'KEEPTTL')
  end
end
if left <= 0 then
  return 0
end
may_fill()
if mark ~= '' and redis.call('GET', KEYS[2]) == mark then
  move_line()
end
return left
