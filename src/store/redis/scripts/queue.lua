-- The queue of a lock, and its handover. Whoever frees a lock gives it in the same step to the first live place: the lock's key
-- stays, and names who is next, so that nobody else can set it. That claim alone is woken. It asks, and is granted then. If it
-- does not ask in the time of a handover, it has used up its place.
--
-- A client that knows nothing of the queue would never find the key free then. So the key's value says since when it was never
-- free (ms), and after some time a release opens a gap: the key is free for a moment, in which nobody of the queue is granted it.
--
-- Every script that frees a lock, or finds it free, begins with this; a release, once it knows that somebody waits.
local READERS, NEXT = 'leasehold:readers', 'leasehold:next '
-- A gap of so long (ms) after so long (ms), and a longer one each time that the server's clock has passed a multiple of this.
local GAP, GAP_AFTER, LONG_GAP, LONG_GAP_EVERY = 25, 4000, 200, 32000
-- For how long readers may join those that read (ms). Those that come then wait for so long (ms), since the last one may leave, which
-- opens a gap. If it stays, they join it, for as long as the lock was read before.
local JOINS_FOR, WAITS_FOR = 30000, 10000

-- The keys of a lock. They are in one slot.
local function keys_of(lock, beside)
  return {
    lock = lock,
    queue = beside .. 'queue',
    alone = beside .. 'alone',
    places = beside .. 'places',
    readers = beside .. 'readers',
    grants = beside .. 'grants',
    gap = beside .. 'gap',
    offers = beside .. 'offers',
  }
end

local function server_micros()
  local time = redis.call('TIME')
  return time[1] * 1000000 + time[2]
end

local function server_millis()
  return math.floor(server_micros() / 1000)
end

-- Whether the lock's key names this claim as the next.
local function is_next(holder, owner)
  return holder and string.sub(holder, 1, #NEXT + 32) == NEXT .. owner
end

-- Since when the key was never free (ms), by what it says of a hold or of who is next; nil if nobody waited before.
local function since_of(holder)
  return tonumber(string.match(holder, '^%x+ %d+ [xw](%d+) ') or string.match(holder, '^leasehold:next %x+ (%d+)$'))
end

-- How long the key has to be free now (ms); nil if it has not to be.
local function gap_due(since, now)
  if not since or now - since < GAP_AFTER then
    return nil
  end
  -- The multiple may have passed in the last gap.
  local last = math.floor((since - LONG_GAP - 100) / LONG_GAP_EVERY)
  return math.floor(now / LONG_GAP_EVERY) > last and LONG_GAP or GAP
end

local function may_join(at, now)
  local since = tonumber(redis.call('HGET', at.grants, 'since'))
  local read_for, from = since and now - since or 0, JOINS_FOR
  while 2 * from <= read_for do
    from = 2 * from
  end
  return read_for < from or read_for - from >= WAITS_FOR
end

local function leave_queue(at, owner)
  redis.call('ZREM', at.queue, owner)
  redis.call('ZREM', at.places, owner)
  redis.pcall('HDEL', at.offers, owner)
end

-- Ends the place of a claim that would hold alone, and nothing of a reader's. Returns whether it is such a claim.
local function leave_alone(at, owner)
  -- A key of a wrong type ends this here, before anything is lost.
  if redis.call('ZREM', at.alone, owner) == 0 then
    return false
  end
  leave_queue(at, owner)
  return true
end

-- All dead places at once, so that together they delay those behind them by one place's time. Returns whether there were any; and
-- if not, the place that ends first and when it does.
local function drop_dead_places(at, now)
  local earliest = redis.call('ZRANGE', at.places, '0', '0', 'WITHSCORES')
  local ends = tonumber(earliest[2])
  if not ends or ends > now then
    return false, earliest[1], ends
  end
  for _, owner in ipairs(redis.call('ZRANGEBYSCORE', at.places, '-inf', now)) do
    redis.call('ZREM', at.alone, owner)
    leave_queue(at, owner)
  end
  return true
end

-- Keeps a place until then, at this position or at the one that it has. `offer`: how it may be granted by the message that wakes
-- it (hand_on.lua); nil if it has to ask. `spare`: for how long the keys live beyond the latest place (ms), so that most places are
-- kept without setting that; nil if the keys are known to live until `ends`.
local function keep_place(at, owner, arrival, is_alone, ends, offer, spare)
  if not arrival then
    -- A server without memory allows the other writes after this one: whoever has a place keeps it.
    redis.pcall('HDEL', at.offers, owner)
  end
  if offer then
    redis.call('HSET', at.offers, owner, offer)
  end
  if arrival then
    arrival = string.format('%.0f', arrival)
    redis.call('ZADD', at.queue, arrival, owner)
    if is_alone then
      redis.call('ZADD', at.alone, arrival, owner)
    end
  end
  redis.call('ZADD', at.places, string.format('%.0f', ends), owner)
  if not spare then
    return
  end
  local latest = string.format('%.0f', redis.call('ZRANGE', at.places, '-1', '-1', 'WITHSCORES')[2] + spare)
  redis.call('PEXPIREAT', at.queue, latest)
  redis.call('PEXPIREAT', at.alone, latest)
  redis.call('PEXPIREAT', at.places, latest)
  redis.call('PEXPIREAT', at.offers, latest)
end

-- Makes it the first of the queue: it was next, and could not take the lock.
local function put_back(at, owner, is_alone, ends)
  local first = redis.call('ZRANGE', at.queue, '0', '0', 'WITHSCORES')[2]
  keep_place(at, owner, tonumber(first or 1) - 1, is_alone, ends, nil, 0)
end

-- Gives a lock that nobody holds, or that only readers hold (`is_read`), to the first places, as far as they go with the
-- holders, for so long (ms). Returns their owners; nil if nobody has a place. The key was never free `since` then (ms; nil: it
-- was just now). In a gap nobody is given the lock, and the first place is returned: it asks, and hears how long the gap lasts.
-- `grant`: the function that grants the lock by a message, if the script may.
local function hand_over(at, is_read, span, since, grant)
  local first = redis.call('ZRANGE', at.queue, '0', '0')[1]
  if not first then
    return nil
  end
  local micros = server_micros()
  local now = math.floor(micros / 1000)
  if drop_dead_places(at, now) then
    first = redis.call('ZRANGE', at.queue, '0', '0')[1]
    if not first then
      return nil
    end
  end
  if is_read and not may_join(at, now) then
    return {}
  end
  local gap = not is_read and gap_due(since, now)
  if gap then
    redis.call('SET', at.gap, '', 'PX', gap)
    return {first}
  elseif not is_read and not since and redis.call('EXISTS', at.gap) == 1 then
    return {first}
  end
  local never_free = string.format('%.0f', since or now)
  local offer = grant and redis.pcall('HGET', at.offers, first)
  if not is_read and leave_alone(at, first) then
    if type(offer) == 'string' and grant(at, first, offer, never_free, micros) then
      return {}
    end
    redis.call('SET', at.lock, NEXT .. first .. ' ' .. never_free, 'PX', span)
    return {first}
  end
  local writer = redis.call('ZRANGE', at.alone, '0', '0', 'WITHSCORES')
  if first == writer[1] then
    return {}
  end
  -- A key of a wrong type ends this here, before it is lost.
  redis.call('ZCARD', at.readers)
  redis.call('HLEN', at.grants)
  if not is_read then
    -- Readers of an earlier time lost their hold with the lock's key.
    redis.call('DEL', at.readers, at.grants)
  end
  local called = redis.call('ZRANGEBYSCORE', at.queue, '-inf', writer[2] and '(' .. writer[2] or '+inf')
  for _, reader in ipairs(called) do
    leave_queue(at, reader)
    redis.call('ZADD', at.readers, now + span, reader)
  end
  redis.call('HSETNX', at.grants, 'since', never_free)
  local left = math.max(span, is_read and redis.call('PTTL', at.lock) or 0)
  redis.call('SET', at.lock, READERS, 'PX', left)
  redis.call('PEXPIRE', at.readers, left)
  redis.call('PEXPIRE', at.grants, left)
  return called
end

-- Wakes one claim, by the channel of its manager, which no other process has to hear of: all its owner tokens end alike.
local function wake(channel, owner)
  redis.pcall('PUBLISH', channel .. ':' .. string.sub(owner, 25), owner)
end

-- Hands over what was freed, and wakes whoever is next; everybody if nobody has a place. What cannot be read, and a user that
-- may not publish, do not fail after the write: then everybody asks.
local function pass_on(at, is_read, span, channel, since, grant)
  local is_known, called = pcall(hand_over, at, is_read, span, since, grant)
  if not is_known or not called then
    redis.pcall('PUBLISH', channel, '')
    return
  end
  for _, owner in ipairs(called) do
    wake(channel, owner)
  end
end
