package source

import (
	"bufio"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"time"

	"k8s.io/apimachinery/pkg/watch"
)

const (
	// bookmarkEvery is how often a watch is sent a bookmark.
	bookmarkEvery = time.Minute
	// bookmarkBeforeEnd is how long before its end a watch is sent the last one.
	bookmarkBeforeEnd = 2 * time.Second
	// longestWatch is how long a watch lasts at most.
	longestWatch = 10 * time.Minute
)

// A watcher serves one watch.
type watcher struct {
	source *Source
	*request
	filter
	format
	out   *bufio.Writer
	flush func()
	end   time.Time
}

// watch serves a watch until it times out or the client closes it. It calls ready when all
// that was asked for as initial events has been sent. It returns an error only if it has
// not responded yet.
func (s *Source) watch(w http.ResponseWriter, r *request, ready func()) error {
	selected, err := filterOf(r)
	if err != nil {
		return err
	}
	query, lasts := r.URL.Query(), longestWatch
	if seconds, err := strconv.Atoi(query.Get("timeoutSeconds")); err == nil {
		lasts = min(lasts, time.Duration(seconds)*time.Second)
	}
	v := &watcher{
		source: s, request: r, filter: selected, format: negotiate(r.Request, r.kind),
		out: bufio.NewWriterSize(w, 64<<10), flush: func() { w.(http.Flusher).Flush() }, end: time.Now().Add(lasts),
	}
	version := query.Get("resourceVersion")
	withInitialEvents := query.Get("sendInitialEvents") == "true" || version == "" || version == "0"
	from := 0
	if !withInitialEvents {
		at, err := strconv.Atoi(version)
		if err != nil {
			return fmt.Errorf("resourceVersion %q: %w", version, err)
		}
		changes, _, _ := s.since(r.collection, 0)
		from, _ = slices.BinarySearchFunc(changes, at+1, func(c change, version int) int { return c.version - version })
	}
	w.Header().Set("Content-Type", v.watchType())
	w.WriteHeader(http.StatusOK)
	if withInitialEvents {
		snap := s.snapshot(r.collection)
		from, err = snap.logged, v.sendAll(snap)
		if err == nil && query.Get("sendInitialEvents") == "true" {
			err = v.bookmark(snap.version, true)
		}
	}
	if err == nil {
		err = v.sent()
	}
	if err == nil {
		ready()
		v.follow(from, query.Get("allowWatchBookmarks") == "true")
	}
	return ignoreClosed(err)
}

// sendAll sends what a snapshot contains as initial events.
func (v *watcher) sendAll(snap snapshot) error {
	var frames [][]template // by series and sample
	for _, s := range snap.series {
		var ofSeries []template
		for _, sample := range s.samples {
			frame, err := v.frame(watch.Added, sample)
			if err != nil {
				return err
			}
			ofSeries = append(ofSeries, newTemplate(frame))
		}
		frames = append(frames, ofSeries)
	}
	var buffer []byte
	for _, e := range snap.each(v.filter, 0) {
		if e.object != nil {
			if err := v.send(watch.Added, e.object); err != nil {
				return err
			}
			continue
		}
		ofSeries := frames[e.item.series]
		buffer = ofSeries[e.item.number%len(ofSeries)].append(buffer[:0], snap.numbers(e.item))
		if _, err := v.out.Write(buffer); err != nil {
			return err
		}
	}
	return nil
}

// follow sends the changes from a place in the log, and bookmarks.
func (v *watcher) follow(from int, bookmarks bool) {
	end := time.NewTimer(time.Until(v.end))
	defer end.Stop()
	due := time.NewTimer(v.untilBookmark())
	defer due.Stop()
	if !bookmarks {
		due.Stop()
	}
	for {
		changes, version, more := v.source.since(v.collection, from)
		for _, c := range changes {
			if v.matches(c.object) && v.send(c.of, c.object) != nil {
				return
			}
		}
		from += len(changes)
		if v.sent() != nil {
			return
		}
		select {
		case <-more:
		case <-due.C:
			if v.bookmark(version, false) != nil || v.sent() != nil {
				return
			}
			due.Reset(v.untilBookmark())
		case <-end.C:
			return
		case <-v.Context().Done():
			return
		case <-v.source.stopped:
			return
		}
	}
}

// untilBookmark returns when the next bookmark is due.
func (v *watcher) untilBookmark() time.Duration {
	if last := time.Until(v.end) - bookmarkBeforeEnd; last > 0 {
		return min(bookmarkEvery, last)
	}
	return bookmarkEvery
}

func (v *watcher) bookmark(version int, endsInitialEvents bool) error {
	obj, err := bookmark(v.kind, strconv.Itoa(version), endsInitialEvents)
	if err != nil {
		return err
	}
	return v.send(watch.Bookmark, obj)
}

func (v *watcher) send(of watch.EventType, obj object) error {
	frame, err := v.frame(of, obj)
	if err != nil {
		return err
	}
	_, err = v.out.Write(frame)
	return err
}

// sent sends what is buffered.
func (v *watcher) sent() error {
	if err := v.out.Flush(); err != nil {
		return err
	}
	v.flush()
	return nil
}
