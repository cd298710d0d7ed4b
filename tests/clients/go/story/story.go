// Package story has what the programs share: records that can be checked, and the printing of results.
package story

import (
	"fmt"
	"os"
	"strings"
	"time"
)

// Patience is the time after which a step is given up.
const Patience = 60 * time.Second

// BatchSize is the number of records in each batch that Produce stories write.
const BatchSize = 20

// Value returns the value of the record with this number: long and repetitive enough to compress.
func Value(number int) string {
	return strings.Repeat(fmt.Sprintf("value %d ", number), 20)
}

// Time returns the timestamp of a record: seconds of 1970, one for each batch, and milliseconds.
func Time(batch, number int) time.Time {
	return time.UnixMilli(int64(1000*(batch+1) + number))
}

// Release returns the release of Kafka, such as 2.4, whose versions of requests a client is to use at most, or "".
func Release() string {
	return os.Getenv("STORY_RELEASE")
}

// Say prints a line of results: a name, a space, and the formatted rest.
func Say(name, format string, args ...any) {
	fmt.Printf(name+" "+format+"\n", args...)
}

// Check ends the program when err is not nil.
func Check(err error) {
	if err != nil {
		panic(err)
	}
}

// Eventually waits until condition is true, and ends the program when it is not in time.
func Eventually(what string, condition func() bool) {
	deadline := time.Now().Add(Patience)
	for !condition() {
		if time.Now().After(deadline) {
			panic("waited in vain for " + what)
		}
		time.Sleep(10 * time.Millisecond)
	}
}

// Settled returns what look finds, as soon as it is what is wanted, and at the latest after Patience. A broker of Apache Kafka
// learns of a change a moment after the controller has confirmed it.
func Settled[T comparable](wanted T, look func() T) T {
	deadline := time.Now().Add(Patience)
	found := look()
	for found != wanted && time.Now().Before(deadline) {
		time.Sleep(10 * time.Millisecond)
		found = look()
	}
	return found
}

// Run calls the story that the command line names with its arguments.
func Run(stories map[string]func(args []string)) {
	story, ok := stories[os.Args[1]]
	if !ok {
		panic("no such story: " + os.Args[1])
	}
	time.AfterFunc(2*Patience, func() { panic("the story does not end") })
	story(os.Args[2:])
}
