-- Behind fence.lua and names.lua. Applies a batch of commands under the tokens of one or more
-- locks, or none of it. A script that fails half-way is not rolled back, so every command is
-- checked before the first write, against the key as the earlier commands will leave it.
--
-- KEYS: records and order of the names, the fence of each lock, then the key of each command
-- ARGV: how far ahead of the server's time a token may be (us), and a name (ms), for how long a
--       name is kept (ms), the name of this
--       batch, when it was made (ms), count of locks, the token of each lock, then for each
--       command: kind of key that it needs, count
--       of its words, its words
-- Answers: applied | again | void | reused | untimely | fenced seen | implausible now | foreign |
--          exists (a key that it creates) | invalid index why |
--          broken index error
local unpack = unpack or table.unpack
local LIMIT = 9007199254740991

local records, order, kept, name, made = KEYS[1], KEYS[2], tonumber(ARGV[3]), ARGV[4], tonumber(ARGV[5])
local locks = tonumber(ARGV[6])
local first_word = 7 + locks

-- The batch's identity. Its words may hold anything, so their lengths mark where each ends; the
-- keys are among them.
local lengths = {}
for i = first_word, #ARGV do
  lengths[#lengths + 1] = #ARGV[i]
end
local digest = redis.sha1hex(table.concat(lengths, ' ') .. ':' .. table.concat(ARGV, '', first_word))

-- Checked first: this batch may have been applied, and the fence raised since.
local applied = redis.call('HGET', records, name)
if applied == digest then
  return {'again'}
elseif applied == 'void' then
  return {'void'}
elseif applied then
  local broke_at, why = string.match(applied, '^' .. digest .. ' broken (%d+) (.*)$')
  if broke_at then
    return {'broken', tonumber(broke_at), why}
  end
  return {'reused'}
end
-- The names are beside the first lock. If the record of this one may have been deleted, the batch
-- may have been applied. So this is checked before the fences, whose refusal would prove that it
-- was not.
local is_known, newest_name = seen_at(KEYS[3])
if not is_known then
  return newest_name
end
local before = forgotten(records, newest_name)
if made <= before or is_ahead(made, newest_name, ARGV[2]) then
  return {'untimely'}
end
local fences = {}
for i = 1, locks do
  local token = tonumber(ARGV[6 + i])
  local seen, newest = seen_at(KEYS[2 + i], token, ARGV[1])
  if not seen then
    return newest
  end
  fences[i] = {token, i == 1 and math.max(newest, made) or newest}
end

-- The state of each key when its turn comes: its kind, whether its present content is gone, and the
-- texts that the batch writes by key and field ('' for a plain key).
local kinds, is_new, texts = {}, {}, {}

local function kind_of(key)
  kinds[key] = kinds[key] or redis.call('TYPE', key).ok
  return kinds[key]
end

local function renew(key, kind)
  kinds[key], is_new[key], texts[key] = kind, true, {}
end

local function write(key, field, text)
  texts[key] = texts[key] or {}
  texts[key][field] = text
end

local function text_at(key, field)
  local written = texts[key] and texts[key][field]
  if written or is_new[key] or kinds[key] == 'none' then
    return written or '0'
  end
  if kinds[key] == 'hash' then
    return redis.call('HGET', key, field) or '0'
  end
  return redis.call('GET', key) or '0'
end

-- Redis counts in 64 bits, Lua exactly only up to 2^53: larger numbers are refused.
local function whole(text)
  if text ~= '0' and (#text > 17 or not string.match(text, '^%-?[1-9]%d*$')) then
    return nil
  end
  local number = tonumber(text)
  if number <= LIMIT and number >= -LIMIT then
    return number
  end
end

local function count(key, field, by)
  local now, step = whole(text_at(key, field)), whole(by)
  if not now or not step or math.abs(now + step) > LIMIT then
    return 'not a whole number below 2^53'
  end
  write(key, field, string.format('%.0f', now + step))
end

-- Why a command may not run; nothing if it may.
local function judge(key, need, words)
  local name = words[1]
  if redis.acl_check_cmd and not redis.acl_check_cmd(unpack(words)) then
    return 'not allowed'
  end
  local kind = kind_of(key)
  if need == 'none' and kind ~= 'none' then
    -- Before this batch, or by it: then it contradicts itself.
    return redis.call('TYPE', key).ok ~= 'none' and 'exists' or 'created twice'
  end
  if need ~= 'any' and kind ~= 'none' and kind ~= need then
    return 'wrong type'
  end
  local why
  if name == 'DEL' then
    renew(key, 'none')
  elseif name == 'SET' then
    renew(key, 'string')
    write(key, '', words[3])
  elseif name == 'INCRBY' then
    why = count(key, '', words[3])
  elseif name == 'HINCRBY' then
    why = count(key, words[3], words[4])
  elseif name == 'HSET' then
    write(key, words[3], words[4])
  end
  if need ~= 'any' and need ~= 'none' then
    kinds[key] = need
  end
  return why
end

local commands = {}
local at = first_word
for i = 3 + locks, #KEYS do
  local need, length = ARGV[at], tonumber(ARGV[at + 1])
  local words = {}
  for word = 1, length do
    words[word] = ARGV[at + 1 + word]
  end
  at = at + 2 + length
  local why = judge(KEYS[i], need, words)
  if why == 'exists' then
    return {why}
  elseif why then
    return {'invalid', i - 3 - locks, why}
  end
  commands[#commands + 1] = words
end

-- A server that accepts no writes now (memory, replicas, disk) refuses the first of them.
record(records, order, name, made, digest, before, kept)
for i, fence in ipairs(fences) do
  set_fence(KEYS[2 + i], fence[1], fence[2])
end
forget(records, order, name, time[1] * 1000 - kept)
for i, words in ipairs(commands) do
  local answer = redis.pcall(unpack(words))
  if type(answer) == 'table' and answer.err then
    -- When it is sent again, it does not count as applied, and its first commands are not done
    -- twice.
    redis.call('HSET', records, name, digest .. ' broken ' .. (i - 1) .. ' ' .. answer.err)
    return {'broken', i - 1, answer.err}
  end
end
return {'applied'}
