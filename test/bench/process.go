package main

import (
	"bytes"
	"fmt"
	"os"
	"strconv"
	"strings"
	"time"
)

// usage is what a process has used.
type usage struct {
	cpu time.Duration // in user and system mode, in steps of 10 ms
	// Resident memory in bytes: all of it, and the part that is pages of files, which is
	// mostly the program itself.
	resident, files int64
	peak            int64 // the most resident memory so far
}

// record sets the two rows of the resident memory: all of it, and without pages of files.
func (u usage) record(figures map[string]float64, row string) {
	figures[row+", MB"] = float64(u.resident) / 1e6
	figures[row+" without pages of files, MB"] = float64(u.resident-u.files) / 1e6
}

// ticks is the number of clock ticks per second in /proc, on every Linux that Go runs on.
const ticks = 100

// usageOf reads what a process has used from /proc; see proc(5).
func usageOf(pid int) (u usage, err error) {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return u, err
	}
	// The name of the program, in parentheses, is the second of the fields and may have
	// spaces.
	fields := bytes.Fields(stat[bytes.LastIndexByte(stat, ')')+1:])
	for _, field := range fields[11:13] { // utime and stime
		n, err := strconv.ParseInt(string(field), 10, 64)
		if err != nil {
			return u, err
		}
		u.cpu += time.Duration(n) * time.Second / ticks
	}
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		return u, err
	}
	for line := range strings.Lines(string(status)) {
		name, value, _ := strings.Cut(line, ":")
		kB, _ := strconv.ParseInt(strings.TrimSuffix(strings.TrimSpace(value), " kB"), 10, 64)
		switch name {
		case "VmRSS":
			u.resident = kB * 1024
		case "VmHWM":
			u.peak = kB * 1024
		case "RssFile":
			u.files = kB * 1024
		}
	}
	return u, nil
}
