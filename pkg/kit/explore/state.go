package explore

import (
	"bytes"
	"encoding/binary"
	"slices"
)

// state is everything that decides what can happen next. All of it is a value: a step makes
// a copy, and changes no slice of another state.
type state struct {
	left      budget   // what may still go wrong
	sent      byte     // how many requests were sent, if they are counted
	objects   []object // what is stored, in order of their keys
	late      []text   // requests whose sender no longer waits for the response
	processes []process
}

// object is a version of an object.
type object struct {
	key  int32 // its number in the system's keys
	text text
}

func (o object) equal(other object) bool { return o.key == other.key && o.text.equal(other.text) }

// phase says what a process may do.
type phase byte

const (
	down    phase = iota // it does not run
	standby              // its caches are filled, and it does not lead
	leading              // its loop runs
	deposed              // its term has ended, and a sync is still running
)

// process is one process. One that is down has nothing else, and one on standby has only
// its caches.
type process struct {
	phase  phase
	caches []cached
	memory text // what it remembers, as JSON
	// What follows from the memory: the name of the object that is due to be synced, as a
	// template, or 0; and how many nanoseconds later something else happens by itself, or -1.
	due  int32
	next int64
	// syncs are those that run, in the order of their objects' names.
	syncs []running
	// wrote are the changes that it was told of, as far as its caches do not show them.
	wrote []write
}

// write is a change that a process has made.
type write struct {
	of      int32 // the name of the object that was synced, as a template
	cache   int   // that will show it
	version int64
}

// sees puts what a cache holds now in place of what it held.
func (p *process) sees(i int, c cached) {
	p.caches[i] = c
	p.wrote = p.unseen(p.wrote)
}

// unseen returns the writes that the caches do not show.
func (p *process) unseen(writes []write) (unseen []write) {
	for _, made := range writes {
		if p.caches[made.cache].version < made.version {
			unseen = append(unseen, made)
		}
	}
	return unseen
}

// running is a sync that waits for the API server.
type running struct {
	of       int32   // the name of its object, as a template
	met      []text  // what it has met with so far: a situation for each part
	request  text    // what it has sent, unless that was answered
	response text    // the answer, which has not arrived
	made     []write // what the answer tells of
}

// cached is what a cache holds, and what its watch has not delivered yet.
type cached struct {
	class   class // of its versions
	version int64
	objects []object
	unseen  []event
}

// event is an event of a watch.
type event struct {
	kind    eventKind
	object  object
	version int64
}

type eventKind byte

const (
	added eventKind = iota
	modified
	deleted
	filtered // the watch does not deliver it
)

// texts calls visit for each text of the state, in the canonical order.
func (s *state) texts(visit func(*text)) {
	objects := func(objects []object) {
		for i := range objects {
			visit(&objects[i].text)
		}
	}
	objects(s.objects)
	for i := range s.late {
		visit(&s.late[i])
	}
	for i := range s.processes {
		p := &s.processes[i]
		for j := range p.caches {
			objects(p.caches[j].objects)
			for k := range p.caches[j].unseen {
				visit(&p.caches[j].unseen[k].object.text)
			}
		}
		visit(&p.memory)
		for j := range p.syncs {
			r := &p.syncs[j]
			for k := range r.met {
				visit(&r.met[k])
			}
			visit(&r.request)
			visit(&r.response)
		}
	}
}

// free returns the numbers that are free for what is new.
func (s *state) free(t *templates) (f free) {
	s.texts(func(x *text) {
		for i, g := range t.get(x.template).gaps {
			switch g.kind {
			case versionGap:
				f.version = max(f.version, x.values[i]+1)
			case uidGap:
				f.uid = max(f.uid, x.values[i]+1)
			}
		}
	})
	s.versions(func(_ class, version int64) { f.version = max(f.version, version+1) })
	return f
}

// versions calls visit for each version that is not in a text.
func (s *state) versions(visit func(class, int64)) {
	for _, p := range s.processes {
		for _, c := range p.caches {
			visit(c.class, c.version)
			for _, unseen := range c.unseen {
				visit(c.class, unseen.version)
			}
		}
		writes := func(writes []write) {
			for _, made := range writes {
				visit(p.caches[made.cache].class, made.version)
			}
		}
		writes(p.wrote)
		for _, r := range p.syncs {
			writes(r.made)
		}
	}
}

// encode returns the state as bytes, with canonical names. States are equal if their bytes
// are.
func (s *state) encode(t *templates, horizon int64) []byte {
	r := renaming{ranked: make([]ranking, 0, 16), horizon: horizon}
	collected := make([]*int64, 0, 16) // the caches share the values of their objects
	s.texts(func(x *text) {
		if len(x.values) > 0 && !slices.Contains(collected, &x.values[0]) {
			r.collect(t.get(x.template).gaps, x.values)
			collected = append(collected, &x.values[0])
		}
	})
	s.versions(func(of class, version int64) { r.add(gap{versionGap, of}, version) })
	r.settle()

	e := encoder{templates: t, names: &r, out: make([]byte, 0, 256)}
	for _, left := range s.left {
		e.out = append(e.out, left)
	}
	e.out = append(e.out, s.sent)
	e.objects(s.objects)
	late := make([][]byte, len(s.late))
	for i, request := range s.late {
		late[i] = r.append(nil, t.get(request.template).gaps, request)
	}
	slices.SortFunc(late, bytes.Compare) // whichever comes first
	e.number(int64(len(late)))
	e.out = append(e.out, slices.Concat(late...)...)
	e.number(int64(len(s.processes)))
	for _, p := range s.processes {
		e.process(p)
	}
	return e.out
}

// encoder writes a state. A version of an object that several caches hold is written once.
type encoder struct {
	templates *templates
	names     *renaming
	out       []byte
	met       []object
}

func (e *encoder) number(n int64) { e.out = binary.AppendVarint(e.out, n) }

func (e *encoder) text(x text) {
	if x.template == 0 {
		e.out = append(e.out, 0)
		return
	}
	e.out = e.names.append(e.out, e.templates.get(x.template).gaps, x)
}

func (e *encoder) object(o object) {
	if i := slices.IndexFunc(e.met, o.equal); i >= 0 {
		e.number(int64(i))
		return
	}
	e.number(int64(len(e.met)))
	e.met = append(e.met, o)
	e.number(int64(o.key))
	e.text(o.text)
}

func (e *encoder) objects(objects []object) {
	e.number(int64(len(objects)))
	for _, o := range objects {
		e.object(o)
	}
}

func (e *encoder) process(p process) {
	e.out = append(e.out, byte(p.phase))
	if p.phase == down {
		return
	}
	e.number(int64(len(p.caches)))
	for _, c := range p.caches {
		e.out = append(e.out, byte(c.class))
		e.number(e.names.rename(gap{versionGap, c.class}, c.version))
		e.objects(c.objects)
		e.number(int64(len(c.unseen)))
		for _, unseen := range c.unseen {
			e.out = append(e.out, byte(unseen.kind))
			e.object(unseen.object)
			e.number(e.names.rename(gap{versionGap, c.class}, unseen.version))
		}
	}
	if p.phase == standby {
		return
	}
	e.text(p.memory)
	e.number(int64(p.due))
	e.number(p.next)
	e.number(int64(len(p.syncs)))
	for _, r := range p.syncs {
		e.number(int64(r.of))
		e.number(int64(len(r.met)))
		for _, part := range r.met {
			e.text(part)
		}
		e.text(r.request)
		e.text(r.response)
		e.writes(p, r.made)
	}
	e.writes(p, p.wrote)
}

func (e *encoder) writes(p process, writes []write) {
	e.number(int64(len(writes)))
	for _, made := range writes {
		e.number(int64(made.of))
		e.number(int64(made.cache))
		e.number(e.names.rename(gap{versionGap, p.caches[made.cache].class}, made.version))
	}
}

// decode returns the state that was encoded.
func decode(t *templates, raw []byte) *state {
	d := decoder{templates: t, in: raw}
	s := &state{}
	for i := range s.left {
		s.left[i] = d.byte()
	}
	s.sent = d.byte()
	s.objects = d.objects()
	for range d.number() {
		s.late = append(s.late, d.text())
	}
	s.processes = make([]process, d.number())
	for i := range s.processes {
		d.process(&s.processes[i])
	}
	return s
}

// decoder reads what an encoder has written.
type decoder struct {
	templates *templates
	in        []byte
	met       []object
}

func (d *decoder) byte() byte {
	b := d.in[0]
	d.in = d.in[1:]
	return b
}

func (d *decoder) number() int64 {
	n, size := binary.Varint(d.in)
	d.in = d.in[size:]
	return n
}

func (d *decoder) text() text {
	id, size := binary.Uvarint(d.in)
	d.in = d.in[size:]
	x := text{template: int32(id)}
	if id == 0 {
		return x
	}
	if gaps := d.templates.get(x.template).gaps; len(gaps) > 0 {
		x.values = make([]int64, len(gaps))
		for i := range x.values {
			x.values[i] = d.number()
		}
	}
	return x
}

func (d *decoder) object() object {
	if i := d.number(); i < int64(len(d.met)) {
		return d.met[i]
	}
	o := object{key: int32(d.number())}
	o.text = d.text()
	d.met = append(d.met, o)
	return o
}

func (d *decoder) objects() []object {
	n := d.number()
	if n == 0 {
		return nil
	}
	objects := make([]object, n)
	for i := range objects {
		objects[i] = d.object()
	}
	return objects
}

func (d *decoder) process(p *process) {
	p.next = -1
	if p.phase = phase(d.byte()); p.phase == down {
		return
	}
	p.caches = make([]cached, d.number())
	for i := range p.caches {
		c := &p.caches[i]
		c.class = class(d.byte())
		c.version = d.number()
		c.objects = d.objects()
		if n := d.number(); n > 0 {
			c.unseen = make([]event, n)
			for j := range c.unseen {
				c.unseen[j].kind = eventKind(d.byte())
				c.unseen[j].object = d.object()
				c.unseen[j].version = d.number()
			}
		}
	}
	if p.phase == standby {
		return
	}
	p.memory = d.text()
	p.due = int32(d.number())
	p.next = d.number()
	for range d.number() {
		r := running{of: int32(d.number())}
		for range d.number() {
			r.met = append(r.met, d.text())
		}
		r.request = d.text()
		r.response = d.text()
		r.made = d.writes()
		p.syncs = append(p.syncs, r)
	}
	p.wrote = d.writes()
}

func (d *decoder) writes() (writes []write) {
	for range d.number() {
		writes = append(writes, write{of: int32(d.number()), cache: int(d.number()), version: d.number()})
	}
	return writes
}
