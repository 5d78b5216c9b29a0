-- One attempt to hold. Everything is read and judged before the lock is written, because a script that fails half-way
-- is not rolled back: a key of a wrong type ends the script at its GET.
--
-- KEYS: lock, counter, tombstone of this owner, marker
-- ARGV: owner, ttl (ms), label, counter's ttl (ms), max skew (us),
--       run id ('' = no quarantine, '?' = the server does not tell), max ttl (ms), quarantine if the marker names
--       another run (ms), quarantine if there is no marker (ms), the least token that will do
-- Answers: granted token ttl now | busy ttl now | withdrawn | quarantined ms now | ahead counter now | foreign which |
--          disagree ms
local owner, ttl, label = ARGV[1], ARGV[2], ARGV[3]
local time = redis.call('TIME')
local micros = time[1] * 1000000 + time[2]

if redis.call('EXISTS', KEYS[3]) == 1 then
  return {'withdrawn'}
end

if ARGV[6] ~= '' then
  local millis = math.floor(micros / 1000)
  local marker = redis.call('GET', KEYS[4])
  local ends, wait = 0, nil
  if marker then
    local run, until_ms, max_ttl = string.match(marker, '^(%S+) (%d+) (%d+)$')
    if not run then
      return {'foreign', 'marker'}
    end
    if max_ttl ~= ARGV[7] then
      return {'disagree', tonumber(max_ttl)}
    end
    ends = tonumber(until_ms)
    if run ~= ARGV[6] and ARGV[6] ~= '?' then
      wait = tonumber(ARGV[8])
    end
  else
    wait = tonumber(ARGV[9])
  end
  if wait then
    if wait > 0 then
      ends = math.max(ends, millis + wait)
    end
    redis.call('SET', KEYS[4], ARGV[6] .. ' ' .. string.format('%.0f', ends) .. ' ' .. ARGV[7])
  end
  if ends > millis then
    return {'quarantined', ends - millis, micros}
  end
end

local holder = redis.call('GET', KEYS[1])
if holder and holder ~= owner then
  return {'busy', redis.call('PTTL', KEYS[1]), micros}
end

local last = 0
local counter = redis.call('GET', KEYS[2])
if counter then
  local number, last_owner = string.match(counter, '^(%d+) (%x+) ')
  if not number then
    return {'foreign', 'counter'}
  end
  last = tonumber(number)
  if holder and last_owner == owner then
    -- The first answer was lost: the same grant again.
    local left = redis.call('PTTL', KEYS[1])
    if left > 0 then
      return {'granted', last, left, micros}
    end
  end
end
local most = micros + ARGV[5]
if last >= most then
  return {'ahead', last, micros}
end
local floor = tonumber(ARGV[10])
if floor > most then
  floor = 0
end

local token = math.max(last + 1, micros, floor)
redis.call('SET', KEYS[1], owner, 'PX', ttl)
-- Not tostring: it keeps 14 digits.
redis.call('SET', KEYS[2], string.format('%.0f', token) .. ' ' .. owner .. ' ' .. label, 'PX', ARGV[4])
return {'granted', token, tonumber(ttl), micros}
