-- Judges the server, and arms the counter of tokens if it may grant. Everything is checked before the first write, because a
-- script that fails half-way is not rolled back.
--
-- KEYS: marker, tokens
-- ARGV: protocol, incarnation ('?' = the server hides it); and with a quarantine: max ttl (ms), and in one text: quarantine if
--       the marker names another incarnation (ms), quarantine if there is no marker (ms), the longest that any is (ms), and how often
--       the server was flushed, by which the client decided
-- Returns: armed counter now | quarantined ms now | outdated | foreign | disagree ms | version theirs
local ARMED, KEPT = 1000000000000000, 86400000
local marker_key, tokens = KEYS[1], KEYS[2]
local protocol, incarnation = ARGV[1], ARGV[2]
local time = redis.call('TIME')
local micros = time[1] * 1000000 + time[2]
local now = time[1] .. string.sub('00000' .. time[2], -6)
local millis = math.floor(micros / 1000)

local server, copied = redis.pcall('INFO', 'server'), redis.pcall('INFO', 'replication')
local run_now = type(server) == 'string' and string.match(server, 'run_id:(%w+)') or nil
if run_now then
  -- A proxy may have connected the client to another server without closing its connection.
  local data = type(copied) == 'string' and string.match(copied, 'master_replid:(%w+)')
  if (data and run_now .. '-' .. data or run_now) ~= incarnation then
    return 'outdated'
  end
end

local of_tokens = redis.call('HGET', tokens, 'protocol')
if of_tokens and of_tokens ~= protocol then
  return 'version ' .. of_tokens
end
local marker = redis.call('GET', marker_key)
local theirs, run, until_ms, max_ttl
if marker then
  theirs, run, until_ms, max_ttl = string.match(marker, '^v(%d+) (%S+) (%d+) (%d+)$')
  if not run then
    theirs = string.match(marker, '^v(%d+) ') or (string.match(marker, '^%S+ %d+ %d+ ?%l*$') and '1')
  end
  if not theirs then
    return 'foreign'
  end
  if theirs ~= protocol then
    return 'version ' .. theirs
  end
  if not run then
    return 'foreign'
  end
end

if ARGV[3] then
  if marker and max_ttl ~= ARGV[3] then
    return 'disagree ' .. max_ttl
  end
  local ends = tonumber(until_ms or 0)
  local if_other, if_none, longest, flushes = string.match(ARGV[4], '^(%d+) (%d+) (%d+) (%d+)$')
  local is_other = marker and run ~= incarnation and incarnation ~= '?'
  -- A clock that was set back makes no quarantine longer.
  local is_absurd = ends - millis > tonumber(longest)
  if is_other or is_absurd or not marker then
    local stats, flushes_now = redis.pcall('INFO', 'commandstats'), 0
    if type(stats) == 'string' then
      for name, calls in string.gmatch(stats, 'cmdstat_(%a+):calls=(%d+)') do
        if name == 'flushall' or name == 'flushdb' or name == 'swapdb' then
          flushes_now = flushes_now + calls
        end
      end
      -- The client read this at its connect. Since then the server may have lost its data.
      if flushes_now ~= tonumber(flushes) then
        return 'outdated'
      end
    end
    local wait = tonumber(is_absurd and longest or marker and if_other or if_none)
    -- One that has begun goes on.
    ends = is_absurd and millis + wait or math.max(ends, wait > 0 and millis + wait or 0)
    redis.call('SET', marker_key, 'v' .. protocol .. ' ' .. incarnation .. ' ' .. string.format('%.0f', ends) .. ' ' .. ARGV[3])
  end
  if ends > millis then
    -- Whoever knew the counter has to ask here too.
    local fields = redis.call('HKEYS', tokens)
    for _, field in ipairs(fields) do
      if string.find(field, ':', 1, true) then
        redis.call('HSET', tokens, 'last', redis.call('HGET', tokens, field))
        redis.call('HDEL', tokens, field)
      end
    end
    return 'quarantined ' .. string.format('%.0f', ends - millis) .. ' ' .. now
  end
end

-- The largest number that any counter is known to have given.
local last, generation = 0, tonumber(redis.call('HGET', tokens, 'generation') or 0)
local counter
local fields = redis.call('HGETALL', tokens)
for i = 1, #fields, 2 do
  local name, number = fields[i], tonumber(fields[i + 1])
  if name == 'last' or string.find(name, ':', 1, true) then
    if not number then
      return 'foreign'
    end
    last = math.max(last, number)
  end
end
local known = generation and incarnation .. ':' .. string.format('%.0f', generation)
local value = known and redis.call('HGET', tokens, known)
if value and tonumber(value) > ARMED then
  counter = known
else
  -- A generation is never used twice, even if the hash is lost, because the time goes on.
  generation = math.max(micros, (generation or 0) + 1)
  counter = incarnation .. ':' .. string.format('%.0f', generation)
end
if counter ~= known then
  for i = 1, #fields, 2 do
    if string.find(fields[i], ':', 1, true) then
      redis.call('HDEL', tokens, fields[i])
    end
  end
  local digits = string.format('%.0f', math.max(last + 1, micros))
  redis.call('HSET', tokens, 'protocol', protocol, 'generation', string.format('%.0f', generation), 'last', digits, counter, digits)
  -- From the time that the last token names: a clock that was set back reaches that first.
  redis.call('PEXPIRE', tokens, string.format('%.0f', math.max(0, math.floor(tonumber(digits) / 1000) - millis) + KEPT))
end
return 'armed ' .. counter .. ' ' .. now
