-- Behind fence.lua and names.lua. Claims the name of a commit as void, unless the name exists.
--
-- KEYS: records and order of the names, the fence of the first lock
-- ARGV: how far ahead of the server's time a name may be (ms), for how long it is kept (ms), the
--       name, when it was made (ms)
-- Answers: applied | void | broken index why | old | ahead | foreign
local records, order, fence, name, made = KEYS[1], KEYS[2], KEYS[3], ARGV[3], tonumber(ARGV[4])
local applied = redis.call('HGET', records, name)
if applied == 'void' then
  return {'void'}
elseif applied then
  local broke_at, why = string.match(applied, '^%x+ broken (%d+) (.*)$')
  if broke_at then
    return {'broken', tonumber(broke_at), why}
  end
  return {'applied'}
end
local seen, newest = seen_at(fence)
if not seen then
  return newest
end
local before = forgotten(records, newest)
if made <= before then
  return {'old'}
elseif is_ahead(made, newest, ARGV[1]) then
  return {'ahead'}
end
record(records, order, name, made, 'void', before, tonumber(ARGV[2]))
set_fence(fence, seen, math.max(newest, made))
return {'void'}
