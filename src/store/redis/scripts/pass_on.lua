-- The end of a release: somebody has a place.
pass_on(keys_of(KEYS[1], ARGV[3]), false, ARGV[4], ARGV[2], since_of(holder))
return 1
