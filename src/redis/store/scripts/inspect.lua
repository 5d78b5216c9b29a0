-- Who holds, and how many wait.
--
-- KEYS: locks
-- Answers, for each lock: false if it is free, '!' if it or a key beside it is not ours; otherwise what holds it (`<token> <mode>
-- <since, ms> <label>`, the newest of several readers; `leasehold:rest` or `:barred`; `?` for another client's value), left (ms),
-- holders, how many wait, now (ms)
local time = redis.call('TIME')
local now = math.floor((time[1] * 1000000 + time[2]) / 1000)
local living = '(' .. string.format('%.0f', now)

local function look(lock)
  local base = lock .. '{' .. lock .. '}:'
  local value, holders, left = redis.call('GET', lock), 1, redis.call('PTTL', lock)
  if not value then
    return false
  elseif value == 'leasehold:readers' then
    local all = redis.call('ZRANGEBYSCORE', base .. 'readers', living, '+inf', 'WITHSCORES')
    holders = #all / 2
    for i = 1, #all, 2 do
      local grant = redis.call('HGET', base .. 'grants', all[i]) or ''
      if value == 'leasehold:readers' or grant > value then
        value, left = grant, all[i + 1] - now
      end
    end
  elseif value == 'leasehold:rest' or value == 'leasehold:barred' then
    holders = 0
  elseif string.match(value, '^%x+ %d+ [xw] %d+ ') and string.sub(value, 33, 33) == ' ' then
    value = string.sub(value, 34)
  else
    value = '?'
  end
  return {value, left, holders, redis.call('ZCOUNT', base .. 'places', living, '+inf'), now}
end

local answers = {}
for i, lock in ipairs(KEYS) do
  local is_ours, answer = pcall(look, lock)
  if not is_ours then
    local why = type(answer) == 'table' and answer.err or answer
    if not string.find(why, 'WRONGTYPE', 1, true) then
      -- A missing right.
      return {err = why}
    end
    answer = '!'
  end
  answers[i] = answer
end
return answers
