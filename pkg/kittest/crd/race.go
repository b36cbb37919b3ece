//go:build race

package crd

// underRace reports whether the race detector slows everything down.
const underRace = true
