// As drive.c.
package main

import (
	"fmt"
	"os"
	"time"

	"drive/lease"
)

func main() {
	l := lease.Lease{Path: os.Getenv("LEASEHOLD_LEASE")}
	if !l.Open() {
		fmt.Fprintln(os.Stderr, "refused")
		os.Exit(65)
	}
	var times, left time.Duration
	for n, _ := fmt.Scan(&times); n == 1; n, _ = fmt.Scan(&times) {
		began := time.Now()
		for i := time.Duration(0); i < times; i++ {
			left = l.Remaining()
		}
		fmt.Println(left.Nanoseconds(), (time.Since(began) / times).Nanoseconds())
	}
}
