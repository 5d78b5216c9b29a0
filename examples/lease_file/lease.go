// Package lease: is the lease of this command live? One Lease for each goroutine.
package lease

import (
	"fmt"
	"hash/fnv"
	"os"
	"strings"
	"syscall"
	"time"
	"unsafe"
)

type Lease struct {
	Path, line            string
	shared                []byte
	deadline, wall, ahead time.Duration
	over                  bool
}

var start = time.Now()

// Open is false for what is no record of a lease of this boot. Call it once, before Remaining.
func (l *Lease) Open() bool {
	var found syscall.Stat_t
	file, _ := syscall.Open(l.Path, syscall.O_NONBLOCK|syscall.O_NOCTTY|syscall.O_CLOEXEC, 0)
	defer syscall.Close(file)
	err := syscall.Fstat(file, &found)
	ours := err == nil && (found.Uid == 0 || int(found.Uid) == os.Geteuid())
	if ours && found.Mode&syscall.S_IFMT == syscall.S_IFREG {
		l.shared, _ = syscall.Mmap(file, 0, int(found.Size), syscall.PROT_READ, syscall.MAP_SHARED)
	}
	return l.parse()
}

func (l *Lease) parse() bool {
	var text, sum, want, state string
	for tries := 0; tries < 100 && (tries == 0 || sum != want); tries++ { // A part may be seen.
		l.line, l.deadline = string(l.shared), 0
		text, sum, _ = strings.Cut(l.line, " sum=")
		hash := fnv.New64a()
		hash.Write([]byte(text))
		want = fmt.Sprintf("%016x\n", hash.Sum64())
	}
	id, _ := os.ReadFile("/proc/sys/kernel/random/boot_id")
	namespace, err := os.Readlink("/proc/self/ns/time")
	if err != nil {
		namespace = "0" // Linux before 5.6 has one time.
	}
	here := fmt.Sprintf(" boot=%s timens=%s ", id[:36], strings.Trim(namespace, "time:[]"))
	deadline, form := time.Duration(0), "leasehold-lease 1 state=%s deadline=%d token="
	_, err = fmt.Sscanf(text, form, &state, &deadline)
	known := err == nil && sum == want && strings.Contains(text+" ", here)
	if known && state == "live" {
		l.deadline = deadline
	}
	return known
}

// Remaining is what is left, 0 once the lease is over.
func (l *Lease) Remaining() time.Duration {
	for again := false; !l.over; again = true {
		known := string(l.shared) == l.line || l.parse() // What has not changed was judged before.
		now := time.Now()
		mono, wall := now.Sub(start), time.Duration(now.UnixNano())-now.Sub(start)
		if (wall - l.wall).Abs() > time.Millisecond { // The machine slept, perhaps.
			var boot syscall.Timespec
			syscall.Syscall(syscall.SYS_CLOCK_GETTIME, 7, uintptr(unsafe.Pointer(&boot)), 0)
			l.wall, l.ahead = wall, time.Duration(boot.Nano())+time.Millisecond-mono
		}
		if left := l.deadline - mono - l.ahead; known && left > 0 {
			return left
		}
		l.over = again || !l.Open() // A file that was deleted is made again.
	}
	return 0 // Final.
}
