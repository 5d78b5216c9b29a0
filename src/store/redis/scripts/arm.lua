-- Judges the server, and arms the counter of tokens if it may grant. Everything is checked before the first write, because a
-- script that fails half-way is not rolled back.
--
-- KEYS: marker, tokens
-- ARGV: protocol, incarnation ('?' = the server hides it); and with a quarantine: max ttl (ms), and in one text: quarantine if
--       the marker names another run (ms), quarantine if there is no marker (ms), 1 if every write is on disk, else 0, the
--       account of the server by which the client decided
-- Returns: armed counter now | quarantined ms now | outdated | ahead counter now | foreign | disagree ms | version theirs
local ARMED, MAX_SKEW, KEPT = 1000000000000000, 1000000, 86400000
local marker_key, tokens = KEYS[1], KEYS[2]
local protocol, incarnation = ARGV[1], ARGV[2]
local time = redis.call('TIME')
local micros = time[1] * 1000000 + time[2]
local now = time[1] .. string.sub('00000' .. time[2], -6)
local millis = math.floor(micros / 1000)

local server, copied = redis.pcall('INFO', 'server'), redis.pcall('INFO', 'replication')
local run_now = type(server) == 'string' and string.match(server, 'run_id:(%w+)') or nil
local former = type(copied) == 'string' and string.match(copied, 'master_replid2:(%x+)') or ''
if run_now then
  -- A proxy may have connected the client to another server without closing its connection.
  local is_now = string.find(former, '[^0]') and run_now .. '-' .. former or run_now
  if is_now ~= incarnation then
    return 'outdated'
  end
end

local of_tokens = redis.call('HGET', tokens, 'protocol')
if of_tokens and of_tokens ~= protocol then
  return 'version ' .. of_tokens
end
local marker = redis.call('GET', marker_key)
local theirs, run, until_ms, max_ttl, how
if marker then
  theirs, run, until_ms, max_ttl, how = string.match(marker, '^v(%d+) (%S+) (%d+) (%d+) ?(%l*)$')
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
  local is_other = marker and run ~= incarnation and incarnation ~= '?'
  if is_other or not marker then
    -- Changes when the server restarts, and when its data are flushed or replaced by those of another server; nil where a
    -- script may not read it.
    local function account()
      local stats = redis.pcall('INFO', 'commandstats')
      if type(stats) ~= 'string' or type(copied) ~= 'string' or type(server) ~= 'string' then
        return nil
      end
      local flushes = 0
      for name, calls in string.gmatch(stats, 'cmdstat_(%a+):calls=(%d+)') do
        if name == 'flushall' or name == 'flushdb' or name == 'swapdb' then
          flushes = flushes + calls
        end
      end
      return string.format('%.0f:', flushes) .. former .. ':' .. (run_now or '')
    end
    local if_other, if_none, is_durable, judged_by = string.match(ARGV[4], '^(%d+) (%d+) (%d) (.*)$')
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
    redis.call('SET', marker_key, 'v' .. protocol .. ' ' .. incarnation .. ' ' .. string.format('%.0f', ends) .. ' ' .. ARGV[3] .. mark)
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
if last >= micros + MAX_SKEW then
  return 'ahead ' .. string.format('%.0f', last) .. ' ' .. now
end
if counter ~= known then
  for i = 1, #fields, 2 do
    if string.find(fields[i], ':', 1, true) then
      redis.call('HDEL', tokens, fields[i])
    end
  end
  local digits = string.format('%.0f', math.max(last + 1, micros))
  redis.call('HSET', tokens, 'protocol', protocol, 'generation', string.format('%.0f', generation), 'last', digits, counter, digits)
  redis.call('PEXPIRE', tokens, KEPT)
end
return 'armed ' .. counter .. ' ' .. now
