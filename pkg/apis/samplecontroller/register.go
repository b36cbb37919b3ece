// Package samplecontroller contains the versions of this controller's API group, each in
// a package of its own.
package samplecontroller

// GroupName is the API group of every kind that is defined in these packages.
const GroupName = "controller.nicoleh.io"
