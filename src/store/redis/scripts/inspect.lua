-- Who holds: for each lock false if it is free; otherwise its ttl (ms), how it is held and by how many, and how many wait;
-- then token and label of the newest holder, if its grant was ours.
--
-- KEYS: lock, counter, places, readers, grants; lock, counter, ...
-- Answers, one for each lock: false | held ms mode holders queue [token label] | wrongtype | foreign
local READERS, BARRED = 'leasehold:readers', 'leasehold:barred'
local time = redis.call('TIME')
local now = math.floor((time[1] * 1000000 + time[2]) / 1000)

-- The reader whose grant is the newest: the others are only counted.
local function read_by(lock, readers, grants, queue)
  local living = redis.call('ZRANGEBYSCORE', readers, '(' .. now, '+inf', 'WITHSCORES')
  local answer = {'held', redis.call('PTTL', lock), 'read', #living / 2, queue}
  for i = 1, #living, 2 do
    local number, label = string.match(redis.call('HGET', grants, living[i]) or '', '^(%d+) (.*)$')
    if number and tonumber(number) > (answer[6] or 0) then
      answer[2] = living[i + 1] - now
      answer[6] = tonumber(number)
      answer[7] = label
    end
  end
  return answer
end

local function held_by(holder, lock, counter, queue)
  local answer = {'held', redis.call('PTTL', lock), 'unknown', 1, queue}
  local record = redis.pcall('GET', counter)
  local number, owner, label = string.match(type(record) == 'string' and record or '', '^(%d+) (%x+) (.*)$')
  if owner == holder then
    -- No label has a tab.
    local before_tab = string.match(label, '^(.*)\twrite$')
    answer[3] = before_tab and 'write' or 'exclusive'
    answer[6] = tonumber(number)
    answer[7] = before_tab or label
  end
  return answer
end

local function look(lock, counter, places, readers, grants)
  local holder = redis.call('GET', lock)
  if not holder then
    return false
  end
  local queue = redis.call('ZCOUNT', places, '(' .. now, '+inf')
  if holder == BARRED then
    return {'held', redis.call('PTTL', lock), 'barred', 0, queue}
  elseif holder == READERS then
    return read_by(lock, readers, grants, queue)
  end
  return held_by(holder, lock, counter, queue)
end

local answers = {}
for i = 1, #KEYS, 5 do
  local is_told, answer = pcall(look, unpack(KEYS, i, i + 4))
  if not is_told then
    -- A key of a wrong type: the lock's own, or one beside it.
    answer = {type(redis.pcall('GET', KEYS[i])) == 'table' and 'wrongtype' or 'foreign'}
  end
  answers[(i + 4) / 5] = answer
end
return answers
