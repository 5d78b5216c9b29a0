-- Ends the hold of a claim that may be one of several readers: compares, deletes, and wakes the waiters. With a tombstone it
-- is withdrawn: it loses its place too, and the tombstone refuses an attempt that is executed later.
--
-- KEYS: lock, queue, alone, places, readers, grants, tombstone of this owner
-- ARGV: owner, channel, tombstone's ttl (ms; 0: a release, which leaves none)
-- Answers: 1 it held, 0 it did not
local READERS = 'leasehold:readers'
local lock, readers, grants, owner = KEYS[1], KEYS[5], KEYS[6], ARGV[1]

-- A key of a wrong type is not ours, and answers an error here.
local function ask(...)
  local answer = redis.pcall(...)
  if type(answer) == 'table' and answer.err then
    return false
  end
  return answer
end

local waited = 0
if ARGV[3] ~= '0' then
  waited = ask('ZREM', KEYS[2], owner)
  ask('ZREM', KEYS[3], owner)
  ask('ZREM', KEYS[4], owner)
end

local holder = ask('GET', lock)
local held = 0
if holder == owner then
  redis.call('DEL', lock)
  held = 1
elseif holder == READERS then
  local ends = ask('ZSCORE', readers, owner)
  if ends then
    local time = redis.call('TIME')
    local now = math.floor((time[1] * 1000000 + time[2]) / 1000)
    held = tonumber(ends) > now and 1 or 0
    redis.call('ZREM', readers, owner)
    ask('HDEL', grants, owner)
    -- The lock lasts as long as the last of the other readers.
    local latest = redis.call('ZRANGE', readers, -1, -1, 'WITHSCORES')[2]
    if latest and tonumber(latest) > now then
      redis.call('PEXPIREAT', lock, latest)
      redis.call('PEXPIREAT', readers, latest)
      redis.call('PEXPIREAT', grants, latest)
    else
      redis.call('DEL', lock, readers, grants)
    end
  end
end
if held == 1 or waited == 1 then
  -- A wake-up is a hint, so a user that may not publish does not fail after the write.
  redis.pcall('PUBLISH', ARGV[2], '')
end
if ARGV[3] ~= '0' then
  -- Last, since only this needs memory. If it fails, the caller gets the error and withdraws again.
  redis.call('SET', KEYS[7], '', 'PX', ARGV[3])
end
return held
