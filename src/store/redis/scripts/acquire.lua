-- One attempt to hold, as the body of a function, which script.rs completes. Everything is checked before the lock is
-- written, because a script that fails half-way is not rolled back. A key of a wrong type ends the script where it is read.
--
-- KEYS: lock, counter, marker, tombstone of this owner; and outside of enter.lua: queue
-- ARGV: owner, ttl (ms), label, the least token that will do; and with a quarantine: run id; of a server that was a
--       replica, run-promotion ('?' = the server hides it), max ttl (ms), and in one text: quarantine if the
--       marker names another run (ms), quarantine if there is no marker (ms), 1 if every write is on disk, else 0, the
--       account of the server by which the client decided
-- Returns: granted token ttl now | busy ttl now | queued: ask enter.lua | withdrawn | quarantined ms now |
--          outdated | ahead counter now | foreign | disagree ms
local COUNTER_TTL, MAX_SKEW = 604800000, 1000000
local lock, owner, ttl, run_id = KEYS[1], ARGV[1], ARGV[2], ARGV[5]

if redis.call('EXISTS', unpack(KEYS, 4)) > 0 then
  if redis.call('EXISTS', KEYS[4]) == 1 then
    return 'withdrawn'
  end
  -- A free lock with a queue is not free for a claim without a place.
  if redis.call('EXISTS', lock) == 0 then
    return 'queued'
  end
end

local counter = redis.call('GET', KEYS[2])
local time = redis.call('TIME')
local micros = time[1] * 1000000 + time[2]
-- A number of this size keeps all its digits only as a text of its parts, or through format(), which is slow.
local now = time[1] .. string.sub('00000' .. time[2], -6)

if run_id then
  local marker = redis.call('GET', KEYS[3])
  local millis = math.floor(micros / 1000)
  local ends, is_other, how = 0, false, nil
  if marker then
    local run, until_ms, max_ttl
    run, until_ms, max_ttl, how = string.match(marker, '^(%S+) (%d+) (%d+) ?(%l*)$')
    if not run then
      return 'foreign'
    end
    if max_ttl ~= ARGV[6] then
      return 'disagree', max_ttl
    end
    ends = tonumber(until_ms)
    is_other = run ~= run_id and run_id ~= '?'
  end
  if is_other or not marker then
    -- Changes when the server restarts, and when its data are flushed or replaced by those of another server; nil where a
    -- script may not read it. A proxy may have connected us to another run without closing our connection.
    local function account()
      local stats, copied = redis.pcall('INFO', 'commandstats'), redis.pcall('INFO', 'replication')
      local server = redis.pcall('INFO', 'server')
      if type(stats) ~= 'string' or type(copied) ~= 'string' or type(server) ~= 'string' then
        return nil
      end
      local flushes = 0
      for name, calls in string.gmatch(stats, 'cmdstat_(%a+):calls=(%d+)') do
        if name == 'flushall' or name == 'flushdb' or name == 'swapdb' then
          flushes = flushes + calls
        end
      end
      return string.format('%.0f:', flushes) .. (string.match(copied, 'master_replid2:(%x+)') or '') .. ':'
        .. (string.match(server, 'run_id:(%w+)') or '')
    end
    local if_other, if_none, is_durable, judged_by = string.match(ARGV[7], '^(%d+) (%d+) (%d) (.*)$')
    -- The client read this at its connect. Since then the server may have lost its data.
    if judged_by ~= (account() or judged_by) then
      return 'outdated'
    end
    local wait = tonumber(marker and if_other or if_none)
    local mark = is_durable == '1' and ' durable' or ''
    -- The run that wrote the marker had every write on disk too.
    local is_whole = mark ~= '' and how == 'durable'
    if wait > 0 and not is_whole then
      ends = math.max(ends, millis + wait)
    end
    redis.call('SET', KEYS[3], run_id .. ' ' .. string.format('%.0f', ends) .. ' ' .. ARGV[6] .. mark)
  end
  if ends > millis then
    return 'quarantined', ends - millis, now
  end
end

local last = 0
if counter then
  last = tonumber(string.match(counter, '^%d+ '))
  if not last then
    return 'foreign'
  end
end
local is_ahead = last >= micros + MAX_SKEW
if is_ahead or not redis.call('SET', lock, owner, 'NX', 'PX', ttl) then
  local holder = redis.call('GET', lock)
  if holder and holder ~= owner then
    return 'busy', redis.call('PTTL', lock), now
  end
  if is_ahead then
    return 'ahead', string.format('%.0f', last), now
  end
  local left = redis.call('PTTL', lock)
  if left > 0 and string.match(counter or '', '^%d+ (%x+) ') == owner then
    -- The first answer was lost: the same grant again. It is written, so that a wait for replicas covers it.
    redis.call('SET', KEYS[2], counter, 'PX', COUNTER_TTL)
    return 'granted', string.match(counter, '^%d+'), left, now
  end
  redis.call('SET', lock, owner, 'PX', ttl)
end

local token, floor = micros, tonumber(ARGV[4])
if last >= token then
  token = last + 1
end
if floor > token and floor <= micros + MAX_SKEW then
  token = floor
end
local text = token == micros and now or string.format('%.0f', token)
redis.call('SET', KEYS[2], text .. ' ' .. owner .. ' ' .. ARGV[3], 'PX', COUNTER_TTL)
return 'granted', text, ttl, now
