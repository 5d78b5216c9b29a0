-- Asks for a lock, takes or keeps a place in its line, or repeats a request that was not answered.
--
-- KEYS: lock, line, marker, gone:<owner>, token
-- ARGV: claim, ttl (ms), mark, the place's time (ms; 0: it takes no place), about the server's time
--       (ms), for people; for a vote
--       also the least token that will do (0: any)
-- Answers: judge (ask judge.lua) | gone (withdrawn, or downgraded) | granted <token> [<now of a
--          vote, us>] |
--          busy <left, ms; -1: nobody knows> <now, us> <the last token>
local lock, token, claim, ttl, mark = KEYS[1], KEYS[5], ARGV[1], ARGV[2], ARGV[3]
if redis.call('GET', KEYS[3]) ~= mark then
  return 'judge'
end
local voted, time = '', redis.call('TIME')
local us = time[1] * 1000000 + time[2]
if ARGV[6] then
  -- The token of a vote is a time, so those of all members are about the same. One that is too far
  -- ahead is damaged.
  local least = tonumber(ARGV[6])
  least = least <= us + 1000000 and math.max(least, us) or us
  if redis.call('EXISTS', lock) == 0 and least > (tonumber(redis.call('GET', token) or 0) or least) then
    redis.call('SET', token, string.format('%.0f', least - 1))
  end
  voted = string.format(' %.0f', us)
end
if redis.call('EXISTS', lock, KEYS[2], KEYS[4]) == 0 and not string.find(claim, '^[rs]', 34) then
  -- Free, and nobody waits.
  local number = string.format('%.0f', math.max(redis.call('INCR', token), us))
  redis.call('SET', token, number)
  local value = string.sub(claim, 1, 33) .. number .. string.sub(claim, 33, 35) .. ARGV[5] .. string.sub(claim, 35)
  redis.call('SET', lock, value, 'PX', ttl)
  return 'granted ' .. number .. voted
elseif redis.call('EXISTS', KEYS[4]) == 1 then
  return 'gone'
end
--@line
local owner, place_ttl, number = string.sub(claim, 1, 32), tonumber(ARGV[4]), nil
local holder = redis.call('GET', lock)
if holder == READERS then
  local ends, grant = redis.call('ZSCORE', readers, owner), redis.call('HGET', grants, owner)
  if ends and grant and tonumber(ends) > now then
    if not reads(claim) then
      -- A request to write, from before its downgrade.
      return 'gone'
    end
    -- The same grant again, for its full time.
    may_fill()
    redis.call('ZADD', readers, whole(now + ttl), owner)
    bind(readers, lock, readers, grants)
    number = string.match(grant, '^%d+')
    -- Shares that ran out leave room for whoever waits.
    move_line()
  end
elseif holder and string.sub(holder, 1, 32) == owner then
  redis.call('PEXPIRE', lock, ttl)
  number = string.match(holder, '^%x+ (%d+)')
end
if number then
  return 'granted ' .. number .. voted
end
local nobody_waits = redis.call('EXISTS', queue) == 0
if nobody_waits and not holder then
  -- Readers that are over have left it.
  end_line()
end
if nobody_waits and is_open(holder, claim) then
  number = hold(claim, now + ttl)
elseif place_ttl > 0 or not holder or holder == READERS then
  -- Everybody else lines up, and then the line moves. A place that has ended is lost.
  local last = redis.call('ZRANGE', queue, -1, -1, 'WITHSCORES')[2] or 0
  local is_there, ends = redis.call('GET', line), redis.call('ZSCORE', places, claim)
  local is_kept = ends and tonumber(ends) > now
  if is_kept then
    may_fill()
  end
  redis.call('ZADD', places, whole(now + math.max(place_ttl, 1)), claim)
  if not is_kept then
    redis.call('ZADD', queue, whole(last + 1), claim)
  end
  if place_ttl > 0 then
    if not is_there then
      redis.call('SET', line, whole(now) .. (holder == READERS and '' or ' ' .. GAP_TURNS))
    end
    -- A place that ends soon does not end the turn of the readers.
    local turn = holder == READERS and redis.call('PTTL', line) or 0
    bind(places, queue, places, line)
    if redis.call('PTTL', line) < turn then
      redis.call('PEXPIRE', line, turn)
    end
  end
  number = move_line(claim, ttl)
  if not number and place_ttl == 0 then
    leave_line(claim)
  end
end
if number then
  return 'granted ' .. number .. voted
end
local left = left_of_lock()
if holder == READERS and string.sub(claim, 34, 34) == 's' then
  -- One end may be enough.
  local ends = redis.call('ZRANGE', readers, 0, 0, 'WITHSCORES')[2]
  left = ends and math.max(ends - now, 1) or left
end
return string.format('busy %.0f %.0f %s', left == -2 and gap() or left, us, redis.call('GET', token) or '0')
