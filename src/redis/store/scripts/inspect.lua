-- Who holds, and how many wait.
--
-- KEYS: locks
-- ARGV: how many holders and how many waiters are named (0: none)
-- Answers, for each lock: false if it is free, '!' if it or a key beside it is not ours; otherwise
-- what holds it (`<token> <mode> <since, ms> <label>`, the newest of several readers;
-- `leasehold:rest` or `:barred`; `?` for another client's value), left (ms), holders, how many
-- wait, now (ms), and, unless none are named, what each holds as above in the order of tokens, and
-- `<mode> <label>` of each that waits, in their order
local time = redis.call('TIME')
local now = math.floor((time[1] * 1000000 + time[2]) / 1000)
local living = '(' .. string.format('%.0f', now)
local MOST_HOLDERS, MOST_WAITERS = tonumber(ARGV[1]), tonumber(ARGV[2])

local function waiters(base)
  local found, from = {}, 0
  while #found < MOST_WAITERS do
    local claims = redis.call('ZRANGE', base .. 'queue', from, from + MOST_WAITERS - 1)
    for _, claim in ipairs(claims) do
      local ends = redis.call('ZSCORE', base .. 'places', claim)
      if ends and tonumber(ends) > now and #found < MOST_WAITERS then
        -- Without the owner, which is a secret.
        found[#found + 1] = string.sub(claim, 34)
      end
    end
    if #claims < MOST_WAITERS then
      break
    end
    from = from + MOST_WAITERS
  end
  return found
end

local function look(lock)
  local base = lock .. '{' .. lock .. '}:'
  local value, holders, left = redis.call('GET', lock), 1, redis.call('PTTL', lock)
  local named = {}
  if not value then
    return false
  elseif value == 'leasehold:readers' then
    local all = redis.call('ZRANGEBYSCORE', base .. 'readers', living, '+inf', 'WITHSCORES')
    holders = #all / 2
    for i = 1, #all, 2 do
      local grant = redis.call('HGET', base .. 'grants', all[i]) or ''
      if grant ~= '' then
        named[#named + 1] = grant
      end
      if value == 'leasehold:readers' or grant > value then
        value, left = grant, all[i + 1] - now
      end
    end
  elseif value == 'leasehold:rest' or value == 'leasehold:barred' then
    holders = 0
  elseif string.match(value, '^%x+ %d+ [xw] %d+ ') and string.sub(value, 33, 33) == ' ' then
    value = string.sub(value, 34)
    named[1] = value
  else
    value = '?'
  end
  local about = {value, left, holders, redis.call('ZCOUNT', base .. 'places', living, '+inf'), now}
  if MOST_HOLDERS > 0 then
    -- Tokens have the same number of digits.
    table.sort(named)
    named[MOST_HOLDERS + 1] = nil
    about[6], about[7] = named, waiters(base)
  end
  return about
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
