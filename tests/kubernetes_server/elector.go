// A candidate of client-go's election, which counts its terms in a file: it reads a number, waits,
// and writes the next one. Two leaders at once would lose a count. With 0 terms it counts nothing,
// and leads until it is killed.
package main

import (
	"context"
	"fmt"
	"os"
	"strconv"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/client-go/tools/leaderelection"
	"k8s.io/client-go/tools/leaderelection/resourcelock"
)

// elector KUBECONFIG NAMESPACE LEASE IDENTITY TERMS FILE
func main() {
	config, err := clientcmd.BuildConfigFromFlags("", os.Args[1])
	must(err)
	client := kubernetes.NewForConfigOrDie(config)
	terms, err := strconv.Atoi(os.Args[5])
	must(err)
	if terms == 0 {
		forever := func(context.CancelFunc) {}
		lead(client, os.Args[2:5], 2*time.Second, forever)
	}
	for term := 0; term < terms; term++ {
		lead(client, os.Args[2:5], 20*time.Millisecond, func(stop context.CancelFunc) {
			count(os.Args[6])
			stop()
		})
	}
}

// lead gets NAMESPACE LEASE IDENTITY.
func lead(client kubernetes.Interface, of []string, retry time.Duration, work func(context.CancelFunc)) {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	lock := &resourcelock.LeaseLock{
		LeaseMeta:  metav1.ObjectMeta{Namespace: of[0], Name: of[1]},
		Client:     client.CoordinationV1(),
		LockConfig: resourcelock.ResourceLockConfig{Identity: of[2]},
	}
	leaderelection.RunOrDie(ctx, leaderelection.LeaderElectionConfig{
		Lock:            lock,
		ReleaseOnCancel: true,
		LeaseDuration:   15 * time.Second,
		RenewDeadline:   10 * time.Second,
		RetryPeriod:     retry,
		Callbacks: leaderelection.LeaderCallbacks{
			OnStartedLeading: func(context.Context) {
				work(cancel)
			},
			OnStoppedLeading: func() {},
		},
	})
}

func count(file string) {
	text, err := os.ReadFile(file)
	must(err)
	number, err := strconv.Atoi(strings.TrimSpace(string(text)))
	must(err)
	time.Sleep(2 * time.Millisecond)
	must(os.WriteFile(file, []byte(strconv.Itoa(number+1)), 0o600))
}

func must(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}
