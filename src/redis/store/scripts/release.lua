-- Ends a hold, or withdraws a claim: compares, deletes, and moves the line.
--
-- KEYS: lock. The others are not declared: while a slot moves, the end of a hold that needs no
--       other key need not wait.
-- ARGV: claim, mark, rest (ms; 0: none), gone (ms, how long late requests of this claim are
--       refused; 0: all were answered), marker,
--       token
-- Answers: 1 it held, 0 it did not
local lock, token, claim, mark, rest, gone = KEYS[1], ARGV[6], ARGV[1], ARGV[2], ARGV[3], ARGV[4]
local owner, holder = string.sub(claim, 1, 32), redis.call('GET', lock)
local held = holder and string.sub(holder, 1, 32) == owner and 1 or 0

local function end_hold()
  if rest == '0' then
    redis.call('DEL', lock)
  else
    -- Nobody's, for so long. The first write needs no memory.
    redis.call('PEXPIRE', lock, rest)
    redis.call('SET', lock, 'leasehold:rest', 'KEEPTTL')
  end
end

if held == 1 and gone == '0' then
  local beside = lock .. '{' .. lock .. '}:'
  local others = redis.pcall('EXISTS', beside .. 'line', beside .. 'watchers', beside .. 'nothing')
  if others == 0 or type(others) == 'table' then
    -- Nobody waits, or the slot moves to another node, and whoever waits asks there.
    end_hold()
    return 1
  end
end
--@line
if held == 1 then
  end_hold()
elseif holder == READERS then
  local ends = redis.call('ZSCORE', readers, owner)
  held = ends and tonumber(ends) > now and 1 or 0
  -- This reader and some of those that are over. The lock lasts as long as the last of the others.
  end_readers(MOST, owner)
  bind(readers, lock, readers, grants)
end
leave_line(claim)
if gone ~= '0' then
  redis.call('SET', base .. 'gone:' .. owner, '', 'PX', gone)
end
if mark ~= '' and redis.call('GET', ARGV[5]) == mark then
  move_line()
end
if held == 1 and rest ~= '0' then
  notify_of_rest()
end
return held
