-- Ends the hold of a claim that may be one of several readers, or that is next: compares, deletes, and hands the lock over. A
-- withdrawal also ends its place, and removes the counter that an unanswered request of the claim named: executed later, that
-- request is refused. All of it works on a server that has no memory left.
--
-- KEYS: lock, queue, alone, places, readers, grants, gap, offers; for a withdrawal: tokens
-- ARGV: owner, channel, the time of a handover (ms); for a withdrawal: counter ('' = every request was answered)
-- Answers: 1 it held, 0 it did not
local lock, readers, grants, owner = KEYS[1], KEYS[5], KEYS[6], ARGV[1]
local at = {lock = lock, queue = KEYS[2], alone = KEYS[3], places = KEYS[4], readers = readers, grants = grants, gap = KEYS[7], offers = KEYS[8]}
local unanswered = ARGV[4]

-- A key of a wrong type is not ours, and answers an error here.
local function ask(...)
  local answer = redis.pcall(...)
  if type(answer) == 'table' and answer.err then
    return false
  end
  return answer
end

local waited = 0
if unanswered then
  waited = ask('ZREM', KEYS[2], owner)
  ask('ZREM', KEYS[3], owner)
  ask('ZREM', KEYS[4], owner)
  ask('HDEL', KEYS[8], owner)
end

local holder = ask('GET', lock)
local held = 0
local since = holder and since_of(holder)
if holder and string.sub(holder, 1, 32) == owner then
  redis.call('DEL', lock)
  held = 1
elseif is_next(holder, owner) then
  redis.call('DEL', lock)
  waited = 1
elseif holder == READERS then
  local ends = ask('ZSCORE', readers, owner)
  if ends then
    local now = server_millis()
    held = tonumber(ends) > now and 1 or 0
    redis.call('ZREM', readers, owner)
    ask('HDEL', grants, owner)
    -- The lock lasts as long as the last of the other readers.
    local latest = redis.call('ZRANGE', readers, '-1', '-1', 'WITHSCORES')[2]
    if latest and tonumber(latest) > now then
      redis.call('PEXPIREAT', lock, latest)
      redis.call('PEXPIREAT', readers, latest)
      redis.call('PEXPIREAT', grants, latest)
    else
      since = tonumber(ask('HGET', grants, 'since'))
      redis.call('DEL', lock, readers, grants)
      -- Its own hold may have ended before. The lock is free only now.
      waited = 1
    end
  end
end
if held == 1 or waited == 1 then
  local left = ask('GET', lock)
  if not left or left == READERS then
    pass_on(at, left == READERS, ARGV[3], ARGV[2], since)
  end
end
if unanswered and unanswered ~= '' then
  local last = ask('HGET', KEYS[9], unanswered)
  if last then
    ask('HDEL', KEYS[9], unanswered)
    -- Without it the next counter begins with the time, which is larger unless the clock was set back.
    ask('HSET', KEYS[9], 'last', last)
  end
end
return held
