-- One attempt of a claim that has a place, or takes one if it has to wait.
--
-- KEYS: lock, tokens, queue, alone, places, readers, grants, gap, offers
-- ARGV: owner, ttl (ms), mode and label and about the time, counter ('' = nothing is granted, the claim may only take a place), the place's ttl
--       (ms; 0: it takes no place), channel, the time of a handover (ms), 1 if it may be granted by message, else 0; perhaps
--       verify
-- Answers: slow: ask arm.lua | granted token ttl 0 | busy ttl now (us) last: the newest token of the counter
local lock, tokens, queue, alone, places, readers, grants, gap, offers = unpack(KEYS)
local at = {lock = lock, queue = queue, alone = alone, places = places, readers = readers, grants = grants, gap = gap, offers = offers}
local owner, ttl, about, counter, place_ttl = ARGV[1], tonumber(ARGV[2]), ARGV[3], ARGV[4], tonumber(ARGV[5])
if is_another(tokens, counter) then
  return 'slow'
end
local IN_GAP = 'leasehold:gap'
local is_reader = string.sub(about, 1, 1) == 'r'

local holder = redis.call('GET', lock)

-- Holds alone from now on. What the key said of the next in line, since when it was never free, it says of the hold.
local function grant_alone()
  local token = next_token(tokens, counter)
  if not token then
    return 'slow'
  end
  local digits = string.format('%.0f', token)
  local since = is_next(holder, owner) and string.sub(holder, #NEXT + 34) or ''
  local mode = string.sub(about, 1, 1) .. since
  redis.call('SET', lock, owner .. ' ' .. digits .. ' ' .. mode .. string.sub(about, 2), 'PX', ttl)
  return 'granted ' .. digits .. ' ' .. ttl .. ' 0'
end

if is_next(holder, owner) and counter ~= '' then
  -- It was promised: a server without memory allows the other writes after one that needs none.
  redis.pcall('HDEL', offers, owner)
  return grant_alone()
end

local micros = server_micros()
local now = math.floor(micros / 1000)
-- A key of a wrong type ends the script here, before the first write. Those of readers matter only where the lock is free or read, and
-- that of the places is looked at below, after a repeated grant.
local arrival = redis.call('ZSCORE', queue, owner)
local of_alone = redis.call('ZCARD', alone)
local reads_until, grant
if not holder or holder == READERS then
  reads_until = redis.call('ZSCORE', readers, owner)
  grant = redis.call('HGET', grants, owner)
end

if holder and string.sub(holder, 1, 32) == owner then
  -- The first answer or the message was lost: the same grant again. Its end is written, so that a wait for replicas covers it. What
  -- has no more than the time of a handover left, to which a message grants, gets its full time.
  local first, left = string.match(holder, '^%x+ (%d+) '), redis.call('PTTL', lock)
  if first and left > 0 then
    if left <= tonumber(ARGV[7]) then
      left = ttl
    end
    redis.call('PEXPIRE', lock, left)
    return 'granted ' .. first .. ' ' .. left .. ' 0'
  end
end
local is_called = holder == READERS and reads_until and tonumber(reads_until) > now
if is_called and grant then
  -- The same for a reader, or for a hold that was downgraded.
  redis.call('PEXPIRE', lock, redis.call('PTTL', lock))
  return 'granted ' .. string.match(grant, '^%d+') .. ' ' .. (reads_until - now) .. ' 0'
elseif grant then
  -- That hold ended. The next one has a token of its own.
  redis.call('HDEL', grants, owner)
end

local is_changed, earliest, earliest_ends = drop_dead_places(at, now)

-- In a gap the lock is as if held.
if not holder and redis.call('EXISTS', gap) == 1 then
  holder = IN_GAP
end
-- A hold that ran out is handed over by whoever asks first.
if counter ~= '' and (not holder or holder == READERS) and not is_called then
  is_changed = true
  for _, called in ipairs(hand_over(at, holder == READERS, ARGV[7]) or {}) do
    if called == owner then
      is_called = true
    else
      wake(ARGV[6], called)
    end
  end
  holder = redis.call('GET', lock)
end

local last = '0'
if counter ~= '' then
  if is_reader and (is_called or not holder or (holder == READERS and not redis.call('ZRANGE', queue, '0', '0')[1] and may_join(at, now))) then
    if is_called then
      redis.pcall('HDEL', offers, owner)
    end
    local token = next_token(tokens, counter)
    if not token then
      return 'slow'
    end
    local digits = string.format('%.0f', token)
    if holder == READERS then
      for _, dead in ipairs(redis.call('ZRANGEBYSCORE', readers, '-inf', now)) do
        redis.call('ZREM', readers, dead)
        redis.call('HDEL', grants, dead)
      end
    else
      -- Readers of an earlier time lost their hold with the lock's key.
      redis.call('DEL', readers, grants)
      redis.call('HSET', grants, 'since', string.format('%.0f', now))
    end
    redis.call('ZADD', readers, now + ttl, owner)
    redis.call('HSET', grants, owner, digits .. ' ' .. string.sub(about, 3))
    -- The lock lasts as long as the last reader, by the time of the server's clock. Some servers count PX from the begin of the
    -- script, and a server may be stopped between that and TIME.
    local latest = redis.call('ZRANGE', readers, '-1', '-1', 'WITHSCORES')[2]
    redis.call('SET', lock, READERS)
    redis.call('PEXPIREAT', lock, latest)
    redis.call('PEXPIREAT', readers, latest)
    redis.call('PEXPIREAT', grants, latest)
    return 'granted ' .. digits .. ' ' .. ttl .. ' 0'
  elseif not is_reader and (not holder or is_next(holder, owner)) then
    return grant_alone()
  end
  last = redis.call('HGET', tokens, counter)
  if not last then
    -- Withdrawn, or not judged: it takes no place either.
    return 'slow'
  end
elseif is_next(holder, owner) or is_called then
  is_changed = true
  -- It was next, and nothing is granted now: it is the first of those that wait.
  if holder == READERS then
    redis.call('ZREM', readers, owner)
  else
    redis.call('DEL', lock)
    holder = false
  end
  put_back(at, owner, not is_reader, now + math.max(place_ttl, tonumber(ARGV[7])))
end

-- When a retry may succeed: -1 where nobody knows.
local left = holder and redis.call('PTTL', holder == IN_GAP and gap or lock) or -1
local first = redis.call('ZRANGE', queue, '0', '0')[1]
if first and first ~= owner then
  local ends = not is_changed and first == earliest and earliest_ends or redis.call('ZSCORE', places, first)
  local place = tonumber(ends or now) - now
  left = left < 0 and place or math.min(left, place)
end
if place_ttl > 0 then
  if is_changed then
    -- Its own place may have ended, or it was put back.
    arrival = redis.call('ZSCORE', queue, owner)
  end
  local newest
  if not arrival then
    newest = tonumber(redis.call('ZRANGE', queue, '-1', '-1', 'WITHSCORES')[2] or 0) + 1
  end
  local offer
  if ARGV[8] == '1' and counter ~= '' then
    offer = ARGV[7] .. ' ' .. counter .. ' ' .. tokens .. ' ' .. about
  end
  -- The keys of the queue are given one end, and a key that was empty has none.
  local is_whole = not is_changed and earliest and of_alone > 0
  local lives = is_whole and redis.call('PTTL', queue) >= place_ttl and not (offer and redis.call('PTTL', offers) < place_ttl)
  keep_place(at, owner, newest, not is_reader, now + place_ttl, offer, not lives and math.floor(place_ttl / 8) or nil)
end
return 'busy ' .. left .. ' ' .. string.format('%.0f', micros) .. ' ' .. last
