-- Ends a hold, or withdraws a claim: compares, deletes, and moves the line.
--
-- KEYS: lock. The other keys are not declared, since most of them do not exist, and a slot that moves to another node of a cluster
--       would keep a release with such keys waiting.
-- ARGV: claim, mark, rest (ms; 0: none), gone (ms, how long late requests of this claim are refused; 0: all were answered), marker,
--       token
-- Answers: 1 it held, 0 it did not
local lock, token, claim, mark, rest = KEYS[1], ARGV[6], ARGV[1], ARGV[2], ARGV[3]
local owner, holder = string.sub(claim, 1, 32), redis.call('GET', lock)
local held = holder and string.sub(holder, 1, 32) == owner and 1 or 0
local beside = lock .. '{' .. lock .. '}:'
local others = held == 1 and redis.pcall('EXISTS', beside .. 'line', beside .. 'watchers')
if held == 1 and rest == '0' and ARGV[4] == '0' and (others == 0 or type(others) == 'table') then
  -- Nobody waits, or the line is at the other node, and whoever waits asks there.
  redis.call('DEL', lock)
  return 1
end
--@line
if held == 1 and rest ~= '0' then
  -- Nobody's, for so long. The first write needs no memory.
  redis.call('PEXPIRE', lock, rest)
  redis.call('SET', lock, 'leasehold:rest', 'KEEPTTL')
elseif held == 1 then
  redis.call('DEL', lock)
elseif holder == READERS then
  local ends = redis.call('ZSCORE', readers, owner)
  held = ends and tonumber(ends) > now and 1 or 0
  -- This reader and those that are over. The lock lasts as long as the last of the others.
  local ended = redis.call('ZRANGEBYSCORE', readers, '-inf', whole(now))
  ended[#ended + 1] = owner
  for _, one in ipairs(ended) do
    redis.call('ZREM', readers, one)
    redis.call('HDEL', grants, one)
  end
  bind(readers, lock, readers, grants)
end
leave_line(claim)
if ARGV[4] ~= '0' then
  redis.call('SET', base .. 'gone:' .. owner, '', 'PX', ARGV[4])
end
-- A slot that moves to another node gets no new keys here: whoever waits asks there.
if mark ~= '' and redis.call('GET', ARGV[5]) == mark and type(redis.pcall('GET', lock)) ~= 'table' then
  move_line()
end
return held
