-- Judges the server behind a connection. Sent before its first grant, after an idle second, and
-- when a script answers `judge`. Only this script writes the marker, and it answers with the mark,
-- without which nothing is granted, only when the server can have forgotten no lock that still
-- lives. Everything is checked before the first write.
--
-- KEYS: marker, token
-- ARGV: max_ttl (ms); the wait of a server that may have forgotten (ms); 1: it answers with the
--       mark at once; a marker that this client
--       has just written where none was, if the script cache knew no note of the prefix: nobody
--       used it in this run; backlog
--       (repl-backlog-ttl in ms; 0: never); for how long this client has known the server as it is:
--       `<server> <ms>`; 1: a node of a
--       cluster, to which a slot may have come from another node with its marker; the number of the
--       database
-- Answers: mark <now, us> <mark> | wait <ms> <mark> | new <ms> <mark> (there was none) |
--          closed <ms> <mark> (it was written less than 200 ms ago) | replica | ttl <ms of the
--          others> |
--          version <marker> | foreign | hidden (INFO does not say which run this is)
local VERSION = '4'
local max_ttl, longest, fresh = tonumber(ARGV[1]), tonumber(ARGV[2]), ARGV[4]
local about, copy = redis.pcall('INFO', 'server'), redis.pcall('INFO', 'replication')
local info = (type(about) == 'string' and about or '') .. (type(copy) == 'string' and copy or '')
local run, data = string.match(info, 'run_id:(%w+)'), string.match(info, 'master_replid:(%w+)')
-- With SWAPDB a marker comes to another database.
local server = run and data and string.sub(run, 1, 16) .. '-' .. string.sub(data, 1, 16) .. '-' .. ARGV[8] or '?'
if server == '?' and ARGV[3] ~= '1' then
  return type(about) == 'table' and about or type(copy) == 'table' and copy or 'hidden'
end
if string.find(info, 'role:slave', 1, true) then
  return 'replica'
end
local time = redis.call('TIME')
local us = time[1] * 1000000 + time[2]
local now = math.floor(us / 1000)
local mark, last = redis.call('GET', KEYS[1]), tonumber(redis.call('GET', KEYS[2]) or 0)
local version, of, ends, ttl = string.match(mark or '', '^v(%d+) (%S+) (%d+) (%d+)$')
if not last or (mark and not string.find(mark, '^v%d+ ')) then
  return 'foreign'
elseif mark and version ~= VERSION then
  return 'version ' .. mark
elseif mark and tonumber(ttl) ~= max_ttl then
  return 'ttl ' .. ttl
end
local was_young = mark and of == server and tonumber(ends) > now + longest - 200
local is_new, is_fresh = not mark, mark and mark == fresh
ends = tonumber(ends)
-- A clock that was set back does not prolong the wait; the members of a quorum add a second to it.
-- Whoever cannot see which run this is leaves the marker of those who can.
if is_new or is_fresh or (of ~= server and server ~= '?') or ends - now > longest + 1000 then
  local age = 0
  if is_fresh then
    local known, sight = string.match(ARGV[6], '^(%S+) (%d+)$')
    age = known == server and tonumber(sight) or 0
  end
  if is_fresh or (mark and of ~= server and ARGV[7] == '1') then
    -- The age of this run counts, unless it can have been a replica in that time.
    local backlog = tonumber(ARGV[5])
    if not string.find(info, 'master_replid2:0*[1-9a-f]') and (backlog == 0 or backlog > max_ttl) then
      -- Both ends of the server's count are whole seconds, by a wall clock that may have been wrong
      -- at its start. So it counts for no more than its work shows, and not at all if it is far more:
      -- a server that does nothing works for less than 2 ms in each second, after some 10 ms for its
      -- start, and 0.1 ms for each key that it loads then.
      local uptime, cpu = (string.match(info, 'uptime_in_seconds:(%d+)') or 1) - 1, redis.call('INFO', 'cpu')
      local work = (string.match(cpu, 'used_cpu_sys:(%d+%.%d+)') or 1e9) + (string.match(cpu, 'used_cpu_user:(%d+%.%d+)') or 0)
      local loaded = tonumber(string.match(redis.call('INFO', 'persistence'), 'rdb_last_load_keys_loaded:(%d+)'))
      if not loaded then
        -- Version 6 does not say it.
        loaded = 0
        for keys in string.gmatch(redis.call('INFO', 'keyspace'), 'keys=(%d+)') do
          loaded = loaded + keys
        end
      end
      local shown = 500000 * (work - 0.03 - 0.0001 * loaded)
      if uptime <= 10000 * work then
        age = math.max(age, math.min(1000 * uptime, shown))
      end
    end
  end
  ends = now + math.max(longest - age, 0)
  mark = string.format('v%s %s %.0f %.0f', VERSION, server, ends, max_ttl)
  -- The first write needs no memory: a full server is judged too.
  redis.call('DEL', KEYS[1])
  redis.call('SET', KEYS[1], mark)
  -- Tokens go on from the last one that is known, and from the time.
  redis.call('SET', KEYS[2], string.format('%.0f', math.max(us, last + 1)))
end
if ends <= now or ARGV[3] == '1' then
  return string.format('mark %.0f %s', us, mark)
end
return string.format('%s %.0f %s', is_new and 'new' or was_young and not is_fresh and 'closed' or 'wait', ends - now, mark)
