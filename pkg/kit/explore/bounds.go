package explore

import (
	"fmt"
	"strconv"
	"strings"
)

// What may go wrong, and how often, on one path.
const (
	crashes   = iota // a process ends, and another starts
	takeovers        // a process loses the lease while it runs
	losses           // a client gets no response; the request arrives later, or never
	refusals         // the server refuses a request: conflict, invalid, too many requests, internal error
	relists          // a watch breaks off, and its cache is filled anew
	delays           // time passes though something else can happen
	edits            // somebody changes something
	kinds
)

var budgetNames = [kinds]string{"crashes", "takeovers", "losses", "refusals", "relists", "delays", "edits"}

// budget is how often each may still happen.
type budget [kinds]byte

// Bounds limit what is explored. Whatever they do not limit happens in every order and as
// often as it can.
type Bounds struct {
	// Processes is how many processes compete for the lease of a program that is Elected;
	// 0 is 1.
	Processes int
	// Workers is how many syncs of different objects a process runs at the same time; 0 is 1.
	Workers int
	// The others are how often something may go wrong on a path. A crash ends a process
	// that leads, and it starts again. A takeover ends the term of an elected process that
	// goes on. A loss is a request without a response, which the API server carries out at
	// once, later, or never. A refusal is a response of 409, 422, 429 or 500 to a request
	// that is not carried out. A relist fills a cache anew. A delay lets time pass though
	// something else can happen. An edit is one of the Setup's Edits.
	Crashes, Takeovers, Losses, Refusals, Relists, Delays, Edits int
}

// fieldsOf returns the fields in the order of their kinds.
func fieldsOf(b *Bounds) [kinds]*int {
	return [kinds]*int{&b.Crashes, &b.Takeovers, &b.Losses, &b.Refusals, &b.Relists, &b.Delays, &b.Edits}
}

func (b Bounds) budget() (left budget) {
	for i, n := range fieldsOf(&b) {
		left[i] = byte(*n)
	}
	return left
}

// String returns the bounds in the format of [ParseBounds].
func (b Bounds) String() string {
	var parts []string
	if b.Processes > 1 {
		parts = append(parts, fmt.Sprintf("processes=%d", b.Processes))
	}
	if b.Workers > 1 {
		parts = append(parts, fmt.Sprintf("workers=%d", b.Workers))
	}
	for i, n := range fieldsOf(&b) {
		if *n > 0 {
			parts = append(parts, fmt.Sprintf("%s=%d", budgetNames[i], *n))
		}
	}
	return strings.Join(parts, ",")
}

// ParseBounds returns the bounds in a text such as "processes=2,crashes=1".
func ParseBounds(raw string) (b Bounds, err error) {
	fields := map[string]*int{"processes": &b.Processes, "workers": &b.Workers}
	for i, n := range fieldsOf(&b) {
		fields[budgetNames[i]] = n
	}
	for part := range strings.SplitSeq(raw, ",") {
		if part == "" {
			continue
		}
		name, number, _ := strings.Cut(part, "=")
		field := fields[name]
		if field == nil {
			return b, fmt.Errorf("no bound is called %q: want processes, workers, %s", name, strings.Join(budgetNames[:], ", "))
		}
		if *field, err = strconv.Atoi(number); err != nil || *field < 0 || *field > 100 {
			return b, fmt.Errorf("%s: want a number from 0 to 100", part)
		}
	}
	return b, nil
}
