-- Who holds: for each lock false if it is free; otherwise its ttl (ms), how it is held and by how many, and how many wait;
-- then token and label of the newest holder, if its grant was ours, and for how long it holds (ms), if the grant says about when
-- it was.
--
-- KEYS: lock, places, readers, grants; lock, places, ...
-- Answers, one for each lock: false | held ms mode holders queue [token label [ms]] | wrongtype | foreign
local READERS, BARRED, RESTING = 'leasehold:readers', 'leasehold:barred', 'leasehold:resting'
local NEXT = 'leasehold:next '
local time = redis.call('TIME')
local now = math.floor((time[1] * 1000000 + time[2]) / 1000)

-- What a grant says of its holder: a label, and about when it was (ms).
local function holder_of(answer, token, about)
  local label, at = string.match(about, '^(.*) @(%d+)$')
  answer[6], answer[7] = tonumber(token), label or about
  answer[8] = at and math.max(now - at, 0)
end

-- The reader whose grant is the newest: the others are only counted.
local function read_by(lock, readers, grants, queue)
  local living = redis.call('ZRANGEBYSCORE', readers, '(' .. now, '+inf', 'WITHSCORES')
  local answer = {'held', redis.call('PTTL', lock), 'read', #living / 2, queue}
  for i = 1, #living, 2 do
    local number, about = string.match(redis.call('HGET', grants, living[i]) or '', '^(%d+) (.*)$')
    if number and tonumber(number) > (answer[6] or 0) then
      answer[2] = living[i + 1] - now
      holder_of(answer, number, about)
    end
  end
  return answer
end

-- Of the value of another client nothing is known.
local function held_by(holder, lock, queue)
  local answer = {'held', redis.call('PTTL', lock), 'unknown', 1, queue}
  local owner, token, mode, about = string.match(holder, '^(%x+) (%d+) ([xw])%d* (.*)$')
  if owner and #owner == 32 then
    answer[3] = mode == 'w' and 'write' or 'exclusive'
    holder_of(answer, token, about)
  end
  return answer
end

local function look(lock, places, readers, grants)
  local holder = redis.call('GET', lock)
  if not holder then
    return false
  end
  local queue = redis.call('ZCOUNT', places, '(' .. now, '+inf')
  if holder == BARRED then
    return {'held', redis.call('PTTL', lock), 'barred', 0, queue}
  elseif holder == RESTING then
    return {'held', redis.call('PTTL', lock), 'resting', 0, queue}
  elseif string.sub(holder, 1, #NEXT) == NEXT then
    -- Nobody holds it until the next in line has asked.
    return {'held', redis.call('PTTL', lock), 'next', 0, queue}
  elseif holder == READERS then
    return read_by(lock, readers, grants, queue)
  end
  return held_by(holder, lock, queue)
end

local answers = {}
for i = 1, #KEYS, 4 do
  local is_told, answer = pcall(look, unpack(KEYS, i, i + 3))
  if not is_told then
    -- A key of a wrong type: the lock's own, or one beside it.
    answer = {type(redis.pcall('GET', KEYS[i])) == 'table' and 'wrongtype' or 'foreign'}
  end
  answers[(i + 3) / 4] = answer
end
return answers
