// Package samplecontroller holds the versions of the API group of this controller.
package samplecontroller

// GroupName is the API group of every kind defined here.
const GroupName = "controller.nicoleh.io"
