-- One attempt to hold. Everything is judged before the lock is written, because a script that fails half-way is not
-- rolled back. MGET tells nothing of a key of a wrong type: so what seems not to be there is written with NX, which tells.
--
-- KEYS: lock, counter, tombstone of this owner, marker; and outside of enter.lua: queue
-- ARGV: owner, ttl (ms), label, the least token that will do; and with a quarantine: run id ('?' = the server does not
--       tell), max ttl (ms), and in one text: quarantine if the marker names another run (ms), quarantine if there is no
--       marker (ms), the account of the server that both were judged by
-- Answers: granted token ttl now | busy ttl now | queued: ask enter.lua | withdrawn | quarantined ms now |
--          outdated | ahead counter now | foreign which | disagree ms | wrongtype
local COUNTER_TTL, MAX_SKEW = 604800000, 1000000
local owner, ttl, run_id = ARGV[1], ARGV[2], ARGV[5]
local found = redis.call('MGET', KEYS[1], KEYS[2], KEYS[3], KEYS[4])
local holder, counter, marker = found[1], found[2], found[4]
local time = redis.call('TIME')
local micros = time[1] * 1000000 + time[2]

if found[3] then
  return {'withdrawn'}
end

if run_id then
  local millis = math.floor(micros / 1000)
  local ends, is_other = 0, false
  if marker then
    local run, until_ms, max_ttl = string.match(marker, '^(%S+) (%d+) (%d+)$')
    if not run then
      return {'foreign', 'marker'}
    end
    if max_ttl ~= ARGV[6] then
      return {'disagree', tonumber(max_ttl)}
    end
    ends = tonumber(until_ms)
    is_other = run ~= run_id and run_id ~= '?'
  end
  if is_other or not marker then
    -- What changes when the data are flushed, or replaced by those of another server; nothing where a script may not ask.
    local function account()
      local stats, copied = redis.pcall('INFO', 'commandstats'), redis.pcall('INFO', 'replication')
      if type(stats) ~= 'string' or type(copied) ~= 'string' then
        return nil
      end
      local flushes = 0
      for calls in string.gmatch(stats, 'cmdstat_flush%a+:calls=(%d+)') do
        flushes = flushes + calls
      end
      return string.format('%.0f:', flushes) .. (string.match(copied, 'master_replid2:(%x+)') or '')
    end
    local if_other, if_none, judged_by = string.match(ARGV[7], '^(%d+) (%d+) (.*)$')
    -- The client was told at its connect. Since then the server may have lost what it had.
    if judged_by ~= (account() or judged_by) then
      return {'outdated'}
    end
    local wait = tonumber(marker and if_other or if_none)
    if wait > 0 then
      ends = math.max(ends, millis + wait)
    end
    local text = run_id .. ' ' .. string.format('%.0f', ends) .. ' ' .. ARGV[6]
    if not redis.call('SET', KEYS[4], text, marker and 'XX' or 'NX') then
      return {'foreign', 'marker'}
    end
  end
  if ends > millis then
    return {'quarantined', ends - millis, micros}
  end
end

if holder and holder ~= owner then
  return {'busy', redis.call('PTTL', KEYS[1]), micros}
end
-- The lock is free, but not for who comes past a queue.
if not holder and KEYS[5] and redis.call('EXISTS', KEYS[5]) == 1 then
  return {'queued'}
end

local last = 0
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
if last >= micros + MAX_SKEW then
  return {'ahead', last, micros}
end
local token, floor = micros, tonumber(ARGV[4])
if last >= token then
  token = last + 1
end
if floor > token and floor <= micros + MAX_SKEW then
  token = floor
end

if not redis.call('SET', KEYS[1], owner, 'PX', ttl, holder and 'XX' or 'NX') then
  return {'wrongtype'}
end
-- Not tostring: it keeps 14 digits.
local text = string.format('%.0f ', token) .. owner .. ' ' .. ARGV[3]
if not redis.call('SET', KEYS[2], text, 'PX', COUNTER_TTL, counter and 'XX' or 'NX') then
  redis.call('DEL', KEYS[1])
  return {'foreign', 'counter'}
end
return {'granted', token, tonumber(ttl), micros}
