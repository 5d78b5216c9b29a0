-- One attempt of a claim that queues, or of any claim where others queue. The text of acquire.lua comes before it, as the
-- function acquire(), so withdrawn claims, quarantine and tokens are treated as there.
--
-- KEYS: the first four of acquire.lua; then queue, alone, places, readers, grants, entering
-- ARGV: those of acquire.lua; then mode, the place's ttl (ms; 0: it takes no place)
-- Answers: what acquire.lua returns, except queued, as one text; busy ttl now 0 without a marker
local READERS = 'leasehold:readers'
local place_ttl = tonumber(table.remove(ARGV))
local mode = table.remove(ARGV)
local entering = table.remove(KEYS)
local grants = table.remove(KEYS)
local readers = table.remove(KEYS)
local places = table.remove(KEYS)
local alone = table.remove(KEYS)
local queue = table.remove(KEYS)
local lock, owner, ttl = KEYS[1], ARGV[1], tonumber(ARGV[2])
local time = redis.call('TIME')
local micros = time[1] .. string.sub('00000' .. time[2], -6)
local now = math.floor(micros / 1000)

-- A key of a wrong type ends the script here, before the first write.
local holder = redis.call('GET', lock)
local arrival = redis.call('ZSCORE', queue, owner)
redis.call('ZCARD', alone)
redis.call('ZCARD', places)
local reads_until = redis.call('ZSCORE', readers, owner)
local grant = redis.call('HGET', grants, owner)

if redis.call('EXISTS', KEYS[4]) == 1 then
  return 'withdrawn'
end
if holder == owner then
  return table.concat({acquire()}, ' ')
end
if holder == READERS and reads_until and grant and tonumber(reads_until) > now then
  -- The first answer was lost, or the hold was downgraded: the same grant again. It is written, so that a wait for
  -- replicas covers it.
  redis.call('HSET', grants, owner, grant)
  return table.concat({'granted', string.match(grant, '^%d+'), reads_until - now, micros}, ' ')
end

-- All dead waiters at once, so that together they delay those behind them by one place's time.
for _, dead in ipairs(redis.call('ZRANGEBYSCORE', places, '-inf', now)) do
  redis.call('ZREM', queue, dead)
  redis.call('ZREM', alone, dead)
  redis.call('ZREM', places, dead)
  if dead == owner then
    arrival = false
  end
end

-- A reader waits for those before it that share with nobody; whoever shares with nobody waits for all before it.
local ahead
if mode == 'read' then
  local first = redis.call('ZRANGE', alone, 0, 0, 'WITHSCORES')
  if first[1] and (not arrival or tonumber(first[2]) < tonumber(arrival)) then
    ahead = first[1]
  end
else
  local first = redis.call('ZRANGE', queue, 0, 0)[1]
  if first ~= owner then
    ahead = first
  end
end
local is_held = holder and not (mode == 'read' and holder == READERS)

local answer
if is_held or ahead then
  -- When a retry may succeed: -1 where nobody knows.
  local left = is_held and redis.call('PTTL', lock) or -1
  if ahead then
    local place = tonumber(redis.call('ZSCORE', places, ahead) or now) - now
    left = left < 0 and place or math.min(left, place)
  end
  answer = {'busy', left, micros}
  if ARGV[5] and redis.call('EXISTS', KEYS[3]) == 0 then
    -- The quarantine was not decided, and the client has not seen a marker.
    answer[4] = 0
  end
else
  if mode == 'read' then
    -- The lock's own key names all readers. A reader's attempt is made on a key that exists only within this script.
    KEYS[1] = entering
  end
  answer = {acquire()}
end

if answer[1] == 'granted' then
  redis.call('ZREM', queue, owner)
  redis.call('ZREM', alone, owner)
  redis.call('ZREM', places, owner)
  if mode == 'read' then
    redis.call('DEL', entering)
    if holder == READERS then
      for _, dead in ipairs(redis.call('ZRANGEBYSCORE', readers, '-inf', now)) do
        redis.call('ZREM', readers, dead)
        redis.call('HDEL', grants, dead)
      end
    else
      -- Readers of an earlier time lost their hold with the lock's key.
      redis.call('DEL', readers, grants)
    end
    redis.call('ZADD', readers, now + ttl, owner)
    redis.call('HSET', grants, owner, answer[2] .. ' ' .. ARGV[3])
    local left = math.max(ttl, holder and redis.call('PTTL', lock) or 0)
    redis.call('SET', lock, READERS, 'PX', left)
    redis.call('PEXPIRE', readers, left)
    redis.call('PEXPIRE', grants, left)
  end
elseif place_ttl > 0 and (answer[1] == 'busy' or answer[1] == 'quarantined') then
  if not arrival then
    local newest = redis.call('ZRANGE', queue, -1, -1, 'WITHSCORES')
    arrival = tonumber(newest[2] or 0) + 1
    redis.call('ZADD', queue, arrival, owner)
    if mode ~= 'read' then
      redis.call('ZADD', alone, arrival, owner)
    end
  end
  redis.call('ZADD', places, now + place_ttl, owner)
  local latest = redis.call('ZRANGE', places, -1, -1, 'WITHSCORES')[2]
  redis.call('PEXPIREAT', queue, latest)
  redis.call('PEXPIREAT', alone, latest)
  redis.call('PEXPIREAT', places, latest)
end
return table.concat(answer, ' ')
