# One script for flock(1) and for `leasehold run`: prints a line for each behaviour.
# usage: flock.sh DIRECTORY TOOL flock|leasehold
dir=$1 tool=$2 which=$3
cd "$dir"
# The options of flock(1), and after -- the command.
with() {
  opts=
  while [ "$1" != -- ]; do
    case $which-$1 in
      flock-*) opts="$opts $1" ;;
      leasehold--n) opts="$opts --wait 0" ;;
      leasehold--w) opts="$opts --wait" ;;
      leasehold--s) opts="$opts --shared" ;;
      leasehold--x) opts="$opts --write" ;;
      *) opts="$opts $1" ;;
    esac
    shift
  done
  shift
  if [ $which = flock ]; then exec flock $opts "$dir/flock.file" "$@"
  else exec "$tool" run --store "file://$dir/locks" --lock k $opts -- "$@"; fi
}
say() { echo "$1: $2"; }
up() { while ! [ -s "$1" ]; do sleep 0.02; done; }
(with -- true); say "exit code 0" $?
(with -- sh -c 'exit 7'); say "exit code 7" $?
(with -E 9 -- sh -c 'exit 7'); say "exit code 7 with -E" $?
(with -- sh -c 'echo out') | { read l; say "stdout" "$l"; }
echo in | (with -- cat) | { read l; say "stdin" "$l"; }
rm -f up; (with -- sh -c 'echo $$ > up; exec sleep 1000') & holder=$!
up up
(with -n -E 9 -- true) 2>/dev/null; say "busy, -n -E 9" $?
(with -w 1 -E 9 -- true) 2>/dev/null; say "busy, -w 1 -E 9" $?
kill -9 $(cat up); wait $holder 2>/dev/null
(with -n -E 9 -- true) 2>/dev/null; say "after kill -9 of the command" $?
rm -f up; (with -s -- sh -c 'echo $$ > up; exec sleep 1000') & holder=$!
up up
(with -n -s -E 9 -- true); say "shared beside shared" $?
(with -n -x -E 9 -- true) 2>/dev/null; say "exclusive beside shared" $?
kill -9 $(cat up); wait $holder 2>/dev/null
# A child that outlives a killed command keeps the lock, and frees it with its end.
rm -f up; (with -- sh -c 'sleep 1000 > /dev/null 2>&1 & echo $! > up; wait') & holder=$!
up up
kill -9 $holder; wait $holder 2>/dev/null
(with -n -E 9 -- true) 2>/dev/null; say "tool killed, a child lives" $?
kill -9 $(cat up)
(with -w 60 -E 9 -- true); say "the child has ended too" $?
# A child that outlives a command that ended by itself.
rm -f up; (with -- sh -c 'sleep 1000 > /dev/null 2>&1 & echo $! > up') 2>/dev/null
(with -n -E 9 -- true) 2>/dev/null; say "command ended, a child lives" $?
kill -9 $(cat up)
