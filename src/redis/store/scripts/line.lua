-- The line of a lock: a part of every script that ends a hold or grants one. It expects `lock`,
-- `token` (names of keys) and `mark`.
--
-- A claim is one text for all its life, `<owner, 32 hex> <x|w|r> <label>`, or `<owner> s
-- <permits>/<of> <label>` for a reader with a share. Its place is that text in `queue` (by arrival)
-- and in `places` (by its end). The key `line` is there while anybody waits or reads. It says when
-- the lock was last left to others (ms), and how many turns come at least before it is again.
local READERS = 'leasehold:readers'
local GAP, GAP_AFTER, GAP_TURNS = 200, 4000, 10
-- Readers join each other in the first part of each turn, so that the lock is free for once. Not
-- those of a key with this end: it is the membership of processes that share shards, nobody else
-- asks for it, and one that joins must not wait.
local READ_PART, READ_TURN = 30000, 40000
local MEMBERS = '/shard-members'
-- A key of this form is a shard: it has an owner all the time, and nobody else asks for it.
local SHARD = '/shard/%d%d%d%d%d$'
-- How many claims one script calls or notifies: the server does nothing else meanwhile. Whoever is
-- left is called by the next event, or when it asks again.
local MOST = 500
-- For how long a claim that is called holds. A flush may forget that too, so it is no longer than
-- any other hold.
local CALL = math.min(1200, tonumber(string.match(mark, '%d+$') or 0))
local base = lock .. '{' .. lock .. '}:'
local line, queue, places = base .. 'line', base .. 'queue', base .. 'places'
local readers, grants, watchers = base .. 'readers', base .. 'grants', base .. 'watchers'
-- While the slot moves to another node of a cluster, what is missing here may be there, so nothing
-- is done. Either node refuses two names then if one of them is missing, as one of these always is.
local near = redis.pcall('EXISTS', line, base .. 'nothing')
if type(near) == 'table' then
  -- A missing right, as versions 6 and 7.0 say it; as later ones and Valkey do.
  local is_denied = string.find(near.err, 'The user executing', 1, true) or string.find(near.err, 'ACL failure', 1, true)
  return is_denied and near or {err = 'TRYAGAIN the slot moves'}
end
local time = redis.call('TIME')
local us = time[1] * 1000000 + time[2]
local now = math.floor(us / 1000)

-- A whole number as text: Lua itself writes only fourteen digits.
local function whole(number)
  return string.format('%.0f', number)
end

-- The first write of what has to work on a full server: it needs no memory, and after it the others
-- are allowed.
local function may_fill()
  redis.call('DEL', base .. 'nothing')
end

-- These keys live until the latest end in this set; without any, they go.
local function bind(set, ...)
  local latest = redis.call('ZRANGE', set, -1, -1, 'WITHSCORES')[2]
  for _, key in ipairs({...}) do
    if latest then
      redis.call('PEXPIREAT', key, latest)
    else
      redis.call('DEL', key)
    end
  end
end

local function leave_line(...)
  redis.call('ZREM', places, ...)
  redis.call('ZREM', queue, ...)
end

local function reads(claim)
  return string.find(claim, '^[rs]', 34) ~= nil
end

-- How many permits a grant has.
local function permits_of(grant)
  return tonumber(string.match(grant, '^%d+ s %d+ (%d+)/')) or 0
end

-- How many permits all shares have together, also those that are over and were not ended: a field
-- beside their grants.
local function taken()
  return tonumber(redis.call('HGET', grants, 'taken')) or 0
end

local function take(permits)
  redis.call('HSET', grants, 'taken', whole(taken() + permits))
end

-- What is left of the lock (ms). After the server's clock was set back, a hold of ours would last
-- for as long as the step: no lease lasts for longer than max_ttl, so it is cut to that. What others
-- set, and a rest, stay. The last token is a time: one of the future shows the step. Without it a
-- prefix with a longer max_ttl has set the end.
local function left_of_lock()
  local left, most = redis.call('PTTL', lock), tonumber(string.match(mark, '%d+$')) or 0
  if most == 0 or left <= most or (tonumber(redis.call('GET', token) or 0) or 0) <= us + 2000000 then
    return left
  end
  local holder = redis.call('GET', lock)
  may_fill()
  if holder == READERS then
    for _, owner in ipairs(redis.call('ZRANGEBYSCORE', readers, '(' .. whole(now + most), '+inf', 'LIMIT', 0, MOST)) do
      redis.call('ZADD', readers, whole(now + most), owner)
    end
    bind(readers, lock, readers, grants)
  elseif holder == 'leasehold:barred' or string.match(holder, '^%x+ %d+ [xw] ') then
    redis.call('PEXPIRE', lock, most)
  end
  return redis.call('PTTL', lock)
end

-- When the lock was last left to others (ms), and how many turns have to come before it is again,
-- if they are counted.
local function left_at()
  local last, turns = string.match(redis.call('GET', line) or '', '^(%d+) ?(%d*)$')
  return tonumber(last) or now, tonumber(turns)
end

-- Readers of an earlier time lost their hold with the lock's key. A key of a wrong type is not
-- ours, and ends the script here.
local function forget_readers()
  if redis.call('ZCARD', readers) + redis.call('HLEN', grants) > 0 then
    redis.call('DEL', readers, grants)
  end
end

-- Ends readers that are over, so many at most, and these.
local function end_readers(most, ...)
  local ended = redis.call('ZRANGEBYSCORE', readers, '-inf', whole(now), 'LIMIT', 0, most)
  for _, owner in ipairs({...}) do
    ended[#ended + 1] = owner
  end
  if not ended[1] then
    return
  end
  redis.call('ZREM', readers, unpack(ended))
  if taken() > 0 then
    -- One by one: each is given back once.
    for _, owner in ipairs(ended) do
      local permits = permits_of(redis.call('HGET', grants, owner) or '')
      redis.call('HDEL', grants, owner)
      if permits > 0 then
        take(-permits)
      end
    end
  else
    redis.call('HDEL', grants, unpack(ended))
  end
end

-- Makes the claim a holder until then (ms). Returns its token: larger than the last one of the
-- prefix, and the time at least, so that it is larger than those of other prefixes that share the
-- lock.
local function hold(claim, ends)
  local is_reader = reads(claim)
  local is_first = is_reader and redis.call('GET', lock) ~= READERS
  if is_first then
    forget_readers()
  elseif is_reader then
    -- Two for each that comes: so those that died never pile up, and a script that calls many stays
    -- short.
    end_readers(2)
  end
  local number = whole(math.max(redis.call('INCR', token), us))
  redis.call('SET', token, number)
  local about = number .. string.sub(claim, 33, 35) .. whole(now) .. string.sub(claim, 35)
  -- Without a right this script may end anywhere: the lock has an end from the beginning, and then
  -- the exact one.
  local lasts = whole(ends - now)
  if not is_reader then
    redis.call('SET', lock, string.sub(claim, 1, 33) .. about, 'PX', lasts)
    redis.call('PEXPIREAT', lock, whole(ends))
    return number
  end
  redis.call('SET', line, whole(now), 'NX', 'PX', 2 * READ_PART)
  if permits_of(about) > 0 then
    -- A call that it missed is over.
    end_readers(0, string.sub(claim, 1, 32))
    take(permits_of(about))
  end
  redis.call('ZADD', readers, whole(ends), string.sub(claim, 1, 32))
  redis.call('HSET', grants, string.sub(claim, 1, 32), about)
  if is_first then
    redis.call('SET', lock, READERS, 'PX', lasts)
  end
  bind(readers, lock, readers, grants)
  return number
end

-- For how long a free lock is left to clients that know nothing of the line (ms): mostly 0, but an
-- eightieth of the time, GAP at most, when it was not free for GAP_AFTER and for GAP_TURNS. Long
-- turns are few, and whoever waited for one is not to wait longer each time. Before a reader they do
-- not count: those that overlap leave the lock free seldom enough.
local function gap(claim)
  if string.find(lock, SHARD) then
    return 0
  end
  local last, turns = left_at()
  local is_due = now >= last + GAP_AFTER
  if claim and reads(claim) then
    turns = 0
  elseif not turns then
    turns = is_due and 0 or GAP_TURNS
  end
  if turns > 0 then
    if claim and now >= last then
      redis.call('SET', line, whole(last) .. ' ' .. turns - 1, 'XX', 'KEEPTTL')
    end
  elseif is_due then
    last = math.floor(now + math.min((now - last) / 80, GAP))
    redis.call('SET', line, whole(last), 'KEEPTTL')
  end
  return last - now <= GAP and math.max(last - now, 0) or 0
end

-- Whether this claim, as the next one, may hold beside readers.
local function joins(claim)
  local permits, of = string.match(claim, '^s (%d+)/(%d+) ', 34)
  if permits then
    end_readers(MOST)
    -- A reader without its grant may be a share (a move of the slot left its grant to end before it,
    -- or it was evicted). Nobody knows the sum until it has ended.
    local sums = redis.call('HGET', grants, 'taken') and 1 or 0
    if redis.call('HLEN', grants) - sums < redis.call('ZCARD', readers) then
      return false
    end
    return taken() + tonumber(permits) <= tonumber(of)
  end
  return reads(claim)
    and (string.sub(lock, -#MEMBERS) == MEMBERS or math.max(now - left_at(), 0) % READ_TURN < READ_PART)
end

-- Whether this claim, as the next one, may hold beside the holder.
local function is_open(holder, claim)
  if not holder then
    return gap(claim) == 0
  end
  return holder == READERS and joins(claim)
end

-- Notifies the manager of this claim, by the end of its owner token. The channel begins with the
-- prefix, as the keys do: whoever may publish there may grant. A user that may not: the claim asks
-- within a second.
local function notify(claim, what)
  local channel = string.match(token, '^[^{]*') .. '{leasehold}:wake:' .. string.sub(claim, 25, 32)
  redis.pcall('PUBLISH', channel, string.sub(claim, 1, 32) .. ' ' .. what)
end

-- Notifies those without a place who subscribed: votes of a quorum above all.
local function notify_watchers()
  local notified = redis.call('ZRANGE', watchers, 0, MOST - 1)
  for _, owner in ipairs(notified) do
    notify(owner, 'gap 0')
  end
  if notified[1] then
    redis.call('ZREM', watchers, unpack(notified))
  end
end

-- A rest begins. Nobody is served by it, but a job for which somebody waits may be done.
local function notify_of_rest()
  for _, claim in ipairs(redis.call('ZRANGE', queue, 0, MOST - 1)) do
    notify(claim, 'gap 0')
  end
  notify_watchers()
end

-- Nobody waits, and the lock is free: it is left to others. A key of a wrong type is not ours, and
-- ends the script here.
local function end_line()
  if redis.call('GET', line) then
    redis.call('DEL', line)
  end
end

-- Moves the line: ends dead places, and gives a lock that is free, or read, to the first places as
-- far as they go together. Each of them holds from now on, for the time of a call, and is notified.
-- `me` holds for `ttl`, and its token is returned.
local function move_line(me, ttl)
  local dead = redis.call('ZRANGEBYSCORE', places, '-inf', whole(now))
  for i = 1, #dead, MOST do
    leave_line(unpack(dead, i, math.min(i + MOST - 1, #dead)))
  end
  local holder, mine = redis.call('GET', lock), nil
  for _ = 1, MOST do
    local first = redis.call('ZRANGE', queue, 0, 0)[1]
    if not first then
      if not holder then
        end_line()
        notify_watchers()
      end
      return mine
    elseif not is_open(holder, first) then
      if not holder then
        notify(first, 'gap ' .. whole(gap()))
      end
      return mine
    end
    if first == me then
      mine = hold(first, now + ttl)
    else
      notify(first, hold(first, now + CALL) .. ' ' .. whole(us) .. ' ' .. mark)
    end
    leave_line(first)
    holder = redis.call('GET', lock)
  end
  return mine
end
