package explore

import (
	"cmp"
	"encoding/binary"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
)

// Some parts of a JSON text have no meaning but identity and order: the resource versions,
// UIDs and generations that a server gives out, and times. States that differ only in these
// behave alike. So a text is kept as a template, which has gaps, and the values of these
// gaps; and wherever a state is compared with others, its values are renamed in the same
// way.
//
// A gap is recognized by its digits, which nothing else has. Versions, generations and times of
// different resources have nothing to do with each other, so each resource has its own: its
// class. Those of class 0 are of whatever they are found in.
const (
	versionPrefix    = "73" // then three digits for the class, three zeros, and five for the number
	generationPrefix = "84" // likewise
	uidPrefix        = "73cecaea-0000-4000-8000-0000000"
	yearPrefix       = "2222-"
	classDigits      = 3
	zeros            = "000"
	digits           = 5

	firstGeneration = 84_000_000_00000
)

// now is the time in all states: all other times are relative to it.
var now = time.Date(2222, 2, 22, 12, 0, 0, 0, time.UTC)

// class is the class of a value: 0 is none.
type class byte

// gap is a place in a template that has a value.
type gap struct {
	kind  byte
	class class
}

// The kinds of gaps.
const (
	versionGap    = 'v' // the rank of a resource version
	generationGap = 'g' // the rank of a generation
	uidGap        = 'u' // the number of a UID
	exactGap      = 't' // nanoseconds since now
	exactMicroGap = 'n' // the same, of a whole second with six digits more
	secondGap     = 's' // a whole second as API objects have it: 0 is this one, and older ones are -1, -2, and so on
	microGap      = 'm' // the same, with six digits more
)

// A gap is a zero byte, its kind, and a byte for its class.
const (
	gapMark    = '\x00'
	firstClass = '0'
)

func versionText(of class, n int64) string { return numberText(versionPrefix, of, n) }

func numberText(prefix string, of class, n int64) string {
	return fmt.Sprintf("%s%0*d%s%0*d", prefix, classDigits, of, zeros, digits, n)
}

func uidText(n int64) string { return fmt.Sprintf("%s%0*d", uidPrefix, digits, n-1) }

// text is a JSON text: the number of its template, and the values of the gaps. The zero
// value is none.
type text struct {
	template int32
	values   []int64
}

func (t text) equal(other text) bool {
	return t.template == other.template && slices.Equal(t.values, other.values)
}

// template is a text with gaps.
type template struct {
	raw  string
	gaps []gap
}

// templates number the templates that were met. They are safe for concurrent use.
type templates struct {
	// isExact says that times in API objects are exact: see [Setup].Tick.
	isExact bool

	mu  sync.RWMutex
	ids map[string]int32
	all atomic.Pointer[[]template] // appended to while mu is held
}

func newTemplates() *templates {
	t := &templates{ids: map[string]int32{"": 0}}
	t.all.Store(&[]template{{}})
	return t
}

func (t *templates) get(id int32) template { return (*t.all.Load())[id] }

// id returns the number of a template.
func (t *templates) id(raw []byte) int32 {
	t.mu.RLock()
	id, ok := t.ids[string(raw)]
	t.mu.RUnlock()
	if ok {
		return id
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if id, ok := t.ids[string(raw)]; ok {
		return id
	}
	all := *t.all.Load()
	id = int32(len(all))
	made := template{raw: string(raw)}
	for i := 0; i < len(raw); i++ {
		if raw[i] == gapMark {
			made.gaps = append(made.gaps, gap{raw[i+1], class(raw[i+2] - firstClass)})
			i += 2
		}
	}
	all = append(all, made)
	t.all.Store(&all)
	t.ids[made.raw] = id
	return id
}

// parse returns the text, which is about objects of that class. Times in an API object
// count as those of the clocks of others: only their order matters, unless exact or the
// setup says otherwise.
func (t *templates) parse(raw string, of class, exact bool) text {
	b := make([]byte, 0, len(raw))
	var values []int64
	add := func(kind byte, of class, value int64) {
		b = appendGap(b, gap{kind, of})
		values = append(values, value)
	}
	for i := 0; i < len(raw); {
		rest := raw[i:]
		switch rest[0] {
		case '7':
			if c, n, ok := numbered(rest, versionPrefix); ok {
				add(versionGap, cmp.Or(c, of), n)
				i += len(versionPrefix) + classDigits + len(zeros) + digits
				continue
			}
			if number, ok := strings.CutPrefix(rest, uidPrefix); ok {
				n, err := strconv.ParseInt(number[:digits], 10, 64)
				utilruntime.Must(err)
				add(uidGap, 0, n)
				i += len(uidPrefix) + digits
				continue
			}
		case '8':
			if c, n, ok := numbered(rest, generationPrefix); ok {
				add(generationGap, cmp.Or(c, of), n)
				i += len(generationPrefix) + classDigits + len(zeros) + digits
				continue
			}
		case '2':
			if at, length, ok := timed(rest); ok {
				switch {
				case t.isExact && !exact && length == len(microLayout):
					add(exactMicroGap, 0, int64(at.Sub(now)))
				case t.isExact || exact:
					add(exactGap, 0, int64(at.Sub(now)))
				case length == len(microLayout):
					add(microGap, of, int64(at.Sub(now)/time.Second))
				default:
					add(secondGap, of, int64(at.Sub(now)/time.Second))
				}
				i += length
				continue
			}
		}
		b = append(b, rest[0])
		i++
	}
	return text{t.id(b), values}
}

// isTime reports whether the values of a gap are times.
func isTime(g gap) bool {
	return g.kind == secondGap || g.kind == microGap || g.kind == exactGap || g.kind == exactMicroGap
}

func appendGap(b []byte, g gap) []byte { return append(b, gapMark, g.kind, firstClass+byte(g.class)) }

// numbered reads a number with that prefix, and its class.
func numbered(raw, prefix string) (of class, n int64, ok bool) {
	const length = classDigits + len(zeros) + digits
	number, ok := strings.CutPrefix(raw, prefix)
	if !ok || len(number) < length || number[classDigits:classDigits+len(zeros)] != zeros {
		return 0, 0, false
	}
	c, err1 := strconv.ParseUint(number[:classDigits], 10, 7)
	n, err2 := strconv.ParseInt(number[classDigits+len(zeros):length], 10, 64)
	return class(c), n, err1 == nil && err2 == nil
}

const microLayout = "2006-01-02T15:04:05.000000Z"

func timed(raw string) (at time.Time, length int, ok bool) {
	if !strings.HasPrefix(raw, yearPrefix) {
		return at, 0, false
	}
	end := strings.IndexByte(raw[:min(len(raw), len(time.RFC3339Nano))], 'Z')
	if end < 0 {
		return at, 0, false
	}
	at, err := time.Parse(time.RFC3339Nano, raw[:end+1])
	return at, end + 1, err == nil
}

// render returns the text with its values.
func (t *templates) render(x text) string {
	made := t.get(x.template)
	var b strings.Builder
	next := 0
	for i := 0; i < len(made.raw); i++ {
		if made.raw[i] != gapMark {
			b.WriteByte(made.raw[i])
			continue
		}
		i += 2
		g, value := made.gaps[next], x.values[next]
		next++
		switch g.kind {
		case versionGap:
			b.WriteString(versionText(g.class, value))
		case generationGap:
			b.WriteString(numberText(generationPrefix, g.class, value))
		case uidGap:
			b.WriteString(uidText(value + 1))
		case exactGap:
			b.WriteString(now.Add(time.Duration(value)).Format(time.RFC3339Nano))
		case secondGap:
			b.WriteString(now.Add(time.Duration(value) * time.Second).Format(time.RFC3339))
		case microGap:
			b.WriteString(now.Add(time.Duration(value) * time.Second).Format(microLayout))
		case exactMicroGap:
			b.WriteString(now.Add(time.Duration(value)).Format(microLayout))
		}
	}
	return b.String()
}

// renaming gives values their canonical names: versions, generations and seconds by order in
// their class, in which the first generation is always 0, and UIDs by the order in which they
// appear.
type renaming struct {
	ranked  []ranking
	uids    []int64
	horizon int64 // how far the exact past matters
}

// ranking has the values of one kind of gaps, in order.
type ranking struct {
	gap    gap
	values []int64
}

// values returns the values by which those of a gap are ranked.
func (r *renaming) values(g gap) []int64 {
	for i := range r.ranked {
		if r.ranked[i].gap == g {
			return r.ranked[i].values
		}
	}
	return nil
}

// add adds a value to those of a gap.
func (r *renaming) add(g gap, value int64) {
	for i := range r.ranked {
		if r.ranked[i].gap == g {
			if known := &r.ranked[i].values; !slices.Contains(*known, value) {
				*known = append(*known, value)
			}
			return
		}
	}
	r.ranked = append(r.ranked, ranking{g, []int64{value}})
}

// rankOf returns the gap by whose values a value is ranked.
func rankOf(g gap) gap {
	if g.kind == microGap {
		g.kind = secondGap
	}
	return g
}

// collect adds the values of a text. Call settle before rename.
func (r *renaming) collect(gaps []gap, values []int64) {
	for i, g := range gaps {
		switch g.kind {
		case versionGap:
			r.add(g, values[i])
		case generationGap: // A new object has the first one, whichever there are of others.
			r.add(g, 0)
			r.add(g, values[i])
		case secondGap, microGap:
			if values[i] < 0 {
				r.add(rankOf(g), values[i])
			}
		case uidGap:
			if !slices.Contains(r.uids, values[i]) {
				r.uids = append(r.uids, values[i])
			}
		}
	}
}

func (r *renaming) settle() {
	for i := range r.ranked {
		slices.Sort(r.ranked[i].values)
	}
}

// rename returns the canonical name of a value.
func (r *renaming) rename(g gap, value int64) int64 {
	switch g.kind {
	case versionGap, generationGap:
		rank, _ := slices.BinarySearch(r.values(g), value)
		return int64(rank)
	case uidGap:
		return int64(slices.Index(r.uids, value))
	case secondGap, microGap:
		if value >= 0 {
			return value
		}
		seconds := r.values(rankOf(g))
		rank, _ := slices.BinarySearch(seconds, value)
		return int64(rank - len(seconds))
	default:
		return max(value, -r.horizon)
	}
}

// knows reports whether all values of a text were collected.
func (r *renaming) knows(gaps []gap, values []int64) bool {
	for i, g := range gaps {
		switch g.kind {
		case uidGap:
			if !slices.Contains(r.uids, values[i]) {
				return false
			}
		case exactGap, exactMicroGap:
		default:
			if _, ok := slices.BinarySearch(r.values(rankOf(g)), values[i]); !ok && (g.kind == versionGap || g.kind == generationGap || values[i] < 0) {
				return false
			}
		}
	}
	return true
}

// top returns the least number that is greater than all names of versions.
func (r *renaming) top() int64 {
	top := 0
	for _, known := range r.ranked {
		if known.gap.kind == versionGap {
			top = max(top, len(known.values))
		}
	}
	return int64(top)
}

// free are the least numbers that a state has no versions and UIDs of.
type free struct{ version, uid int64 }

// restore returns the value that has a canonical name. Names beyond those that were
// collected are of something new.
func (r *renaming) restore(g gap, name int64, beyond free) int64 {
	switch g.kind {
	case versionGap:
		if known := r.values(g); name < int64(len(known)) {
			return known[name]
		}
		return beyond.version + name - r.top()
	case generationGap:
		known := r.values(g)
		if last := int64(len(known) - 1); last >= 0 && name > last {
			return known[last] + name - last
		} else if last >= 0 {
			return known[name]
		}
		return name
	case secondGap, microGap:
		if name >= 0 {
			return name
		}
		seconds := r.values(rankOf(g))
		return seconds[int64(len(seconds))+name]
	case uidGap:
		if name < int64(len(r.uids)) {
			return r.uids[name]
		}
		return beyond.uid + name - int64(len(r.uids))
	default:
		return name
	}
}

// append adds a text to a key, with the canonical names of its values.
func (r *renaming) append(key []byte, gaps []gap, x text) []byte {
	key = binary.AppendUvarint(key, uint64(x.template))
	for i, g := range gaps {
		key = binary.AppendVarint(key, r.rename(g, x.values[i]))
	}
	return key
}
